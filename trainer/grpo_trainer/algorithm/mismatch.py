"""How far an engine's log-probabilities are from the trainer's, with equal weights."""

from collections.abc import Sequence

import numpy as np

from grpo_trainer.messages import Completion, Floats, Ints

from .batching import MicroBatch, Sample, pad_samples


def probe_batch(prompts: Sequence[Ints], completions: Sequence[Completion]) -> MicroBatch:
    """Completions behind their prompts, as one micro-batch whose mask has all that counts."""
    samples = [
        Sample(number, prompt, c.token_ids, c.logprobs, c.counted, advantage=np.float32(0))
        for number, (prompt, c) in enumerate(zip(prompts, completions, strict=True))
    ]
    return pad_samples(samples, pad_token_id=0, multiple_of=1)


def mean_difference(batch: MicroBatch, logprobs: Floats) -> float:
    """Mean absolute difference in nats per token of `logprobs` [B, L] from the engine's."""
    differences: Floats = np.abs(logprobs - batch.old_logprobs)[batch.mask]
    return float(differences.mean()) if differences.size else 0.0
