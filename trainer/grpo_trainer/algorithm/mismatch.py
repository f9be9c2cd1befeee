"""How far an engine's log-probabilities are from the trainer's, with equal weights."""

from collections.abc import Sequence

import numpy as np

from grpo_trainer.messages import Completion, Floats, Ints

from .batching import MicroBatch


def probe_batch(prompts: Sequence[Ints], completions: Sequence[Completion]) -> MicroBatch:
    """Completions behind their prompts, as one micro-batch whose mask has all that counts."""
    lengths = [len(p) + len(c.token_ids) for p, c in zip(prompts, completions, strict=True)]
    shape = (len(lengths), max(lengths))
    ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    logprobs = np.zeros(shape, dtype=np.float32)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        response = slice(len(prompt), lengths[row])
        ids[row, : len(prompt)], ids[row, response] = prompt, completion.token_ids
        mask[row, response] = completion.counted
        logprobs[row, response] = np.where(completion.counted, completion.logprobs, 0.0)
    return MicroBatch(ids, np.array(lengths), mask, logprobs, np.zeros(len(ids), dtype=np.float32))


def mean_difference(batch: MicroBatch, logprobs: Floats) -> float:
    """Mean absolute difference in nats per token of `logprobs` [B, L] from the engine's."""
    differences: Floats = np.abs(logprobs - batch.old_logprobs)[batch.mask]
    return float(differences.mean()) if differences.size else 0.0
