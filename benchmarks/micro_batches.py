"""Tokens that go through the forward pass, compared with the tokens of the samples.

    .venv/bin/python -m benchmarks.micro_batches [--steps N]

Lengths of completions follow a log-normal distribution that the token limit cuts off, as those of
reasoning models do: most are short, some reach the limit. Nothing is random but by the seed, and
nothing is timed.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from grpo_trainer.algorithm.batching import MicroBatch, build_step
from grpo_trainer.messages import (
    Completion,
    FinishReason,
    Message,
    Prompt,
    Rollout,
    Row,
    Score,
    ScoredGroup,
)
from grpo_trainer.spec import GRPOJob, resolve_algorithm

from .table import Spread, table

PROMPTS, COMPLETIONS = 32, 8
PROMPT_TOKENS, MEDIAN_TOKENS, MAX_TOKENS = 200, 600, 3584
SIGMA = 0.9
RANKS = 2


def step_of(seed: int) -> list[ScoredGroup]:
    """The groups of one step."""
    rng = np.random.default_rng(seed)
    return [_group(rng, index) for index in range(PROMPTS)]


def _group(rng: np.random.Generator, index: int) -> ScoredGroup:
    lengths = np.minimum(MAX_TOKENS, rng.lognormal(np.log(MEDIAN_TOKENS), SIGMA, COMPLETIONS))
    completions = tuple(_completion(max(1, int(length))) for length in lengths)
    scores = tuple(Score(float(i % 2), 1.0, float(i % 2)) for i in range(COMPLETIONS))
    prompt = Prompt(Row(f"row {index}", (Message("user", ""),)), _ids(PROMPT_TOKENS))
    return ScoredGroup(prompt, Rollout(str(index), completions), scores)


def _completion(length: int) -> Completion:
    return Completion(
        token_ids=_ids(length),
        logprobs=np.full(length, -1.0, dtype=np.float32),
        versions=np.zeros(length, dtype=np.int32),
        text="",
        finish_reason=FinishReason.STOP,
    )


def _ids(length: int) -> np.ndarray:
    return np.full(length, 3, dtype=np.int32)


def forwarded(shard: Sequence[MicroBatch], *, one_shape: bool) -> int:
    """Tokens of a rank's forward passes; `one_shape` pads all micro-batches to the largest."""
    if not one_shape:
        return sum(batch.input_ids.size for batch in shard)
    rows, columns = (max(batch.input_ids.shape[axis] for batch in shard) for axis in (0, 1))
    return len(shard) * rows * columns


CASES: tuple[tuple[str, dict[str, int], bool], ...] = (
    ("2 samples", {"microbatch": 2}, False),
    ("2 samples, in one shape", {"microbatch": 2}, True),
    ("8 samples", {"microbatch": 8}, False),
    ("8 samples, in one shape", {"microbatch": 8}, True),
    ("8,192 tokens", {"microbatch": 2, "microbatch_tokens": 8192}, False),
    ("32,768 tokens", {"microbatch": 2, "microbatch_tokens": 32768}, False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = [step_of(seed) for seed in range(parser.parse_args().steps)]
    algorithm = resolve_algorithm(GRPOJob().spec)
    rows = []
    for name, size, one_shape in CASES:
        ratios, passes, largest = [], [], 0
        for groups in steps:
            step = build_step(
                groups, data_parallel=RANKS, algorithm=algorithm, pad_token_id=0, **size
            )
            real = sum(int(b.lengths[b.mask.any(1)].sum()) for s in step.shards for b in s)
            tokens = sum(forwarded(shard, one_shape=one_shape) for shard in step.shards)
            ratios.append(tokens / real)
            passes.append(len(step.shards[0]))
            largest = max(largest, *(b.input_ids.size for s in step.shards for b in s))
        cells = [f"{Spread.of(ratios):.2f}", f"{Spread.of(passes):.0f}", f"{largest:,}"]
        rows.append([name, *cells])
    head = ["micro-batches of", "forwarded / real", "forward passes", "largest, tokens"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
