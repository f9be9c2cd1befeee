"""How many rows of logits exist at a time; nothing of torch, since the memory forecast reads it."""

CHUNK_ELEMENTS = 1 << 26
"""256 MiB in fp32: 441 rows of Qwen2.5's vocabulary, 256 of Gemma's. Fewer rows would leave a GPU
waiting for the weights of the projection, which every chunk reads."""


def chunk_rows(vocabulary: int) -> int:
    """Rows of logits that are projected at a time, for a vocabulary of that size."""
    return max(1, CHUNK_ELEMENTS // vocabulary)
