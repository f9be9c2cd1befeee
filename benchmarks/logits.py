"""Peak memory and time of the log-probabilities of one micro-batch, forward and backward.

    .venv/bin/python -m benchmarks.logits [--case ROWSxTOKENSxVOCABULARY ...] [--hidden N]

Compares whole logits [B, L, V], of whose response tokens 1,024 are processed at a time, with the
head of the training processes, which projects the response tokens in chunks. Each measurement has a
process of its own; memory is what the process has beyond its weights and inputs. Everything is
fp32, since multiplying in bfloat16 takes a CPU many times longer: in bfloat16 whole logits have
half of the bytes, as many as half of the tokens here.
"""

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from grpo_trainer.algorithm.chunks import chunk_rows
from grpo_trainer.algorithm.logprobs import token_logprobs

from .table import Spread, machine, table

MIB = 1 << 20
PROMPT_SHARE = 4
"""One token in so many is the prompt's."""
DEFAULT_CASES = ("2x1024x152064", "2x512x262144")


@dataclass(frozen=True, slots=True)
class Case:
    """One micro-batch."""

    rows: int
    tokens: int
    vocabulary: int

    @classmethod
    def parse(cls, text: str) -> "Case":
        return cls(*(int(part) for part in text.split("x")))

    def __str__(self) -> str:
        return f"B={self.rows} L={self.tokens:,} V={self.vocabulary:,}"


class PeakMemory:
    """The most anonymous memory of this process within a block, beyond what it had before."""

    def __enter__(self) -> "PeakMemory":
        self._base = self._peak = _anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, _anonymous())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        return self._peak - self._base


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux reports RssAnon")


def whole_logits(hidden: Tensor, head: nn.Module, targets: Tensor, mask: Tensor) -> Tensor:
    """[N] from logits of all positions."""
    logits = head(hidden)[:, :-1][mask[:, 1:]]
    found = token_logprobs(logits, targets, temperature=1.0, top_k=None, top_p=1.0)
    return found.logprobs


def chunked_head(hidden: Tensor, head: nn.Module, targets: Tensor, mask: Tensor) -> Tensor:
    """[N] as `consumer/head.py` computes them."""
    rows = hidden[:, :-1][mask[:, 1:]]
    chunk = chunk_rows(head.weight.shape[0])
    found = token_logprobs(
        rows, targets, project=head, temperature=1.0, top_k=None, top_p=1.0, chunk=chunk
    )
    return found.logprobs


WAYS: dict[str, Callable[[Tensor, nn.Module, Tensor, Tensor], Tensor]] = {
    "whole logits": whole_logits,
    "head in chunks": chunked_head,
}


def measure(case: Case, way: str, hidden_size: int) -> tuple[float, float]:
    """MiB and seconds of one forward and backward pass."""
    torch.manual_seed(0)
    head = nn.Linear(hidden_size, case.vocabulary, bias=False)
    hidden = torch.randn(case.rows, case.tokens, hidden_size)
    hidden.requires_grad_()
    mask = torch.zeros(case.rows, case.tokens, dtype=torch.bool)
    mask[:, case.tokens // PROMPT_SHARE :] = True
    targets = torch.randint(case.vocabulary, (int(mask.sum()),))
    head.weight.grad = torch.zeros_like(head.weight)
    began = time.perf_counter()
    with PeakMemory() as memory:
        WAYS[way](hidden, head, targets, mask).mean().backward()
    return memory.bytes / MIB, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="rows x tokens x vocabulary, repeatable")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size of the model")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    cases = [Case.parse(text) for text in arguments.case or DEFAULT_CASES]
    print(machine("torch"))
    print(f"hidden size {arguments.hidden}, three quarters of the tokens are response tokens\n")
    context = multiprocessing.get_context("spawn")
    rows = []
    for case in cases:
        for way in WAYS:
            found = []
            for _ in range(arguments.repeats):
                with context.Pool(1) as pool:
                    found.append(pool.apply(measure, (case, way, arguments.hidden)))
            memory, seconds = zip(*found, strict=True)
            rows.append([str(case), way, f"{Spread.of(memory):.0f}", f"{Spread.of(seconds):.1f}"])
    print(table(["", "", "peak MiB", "seconds"], rows))


if __name__ == "__main__":
    main()
