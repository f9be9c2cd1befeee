"""Weight deltas: how many elements a step changes, bytes per version, speed of both ends.

    .venv/bin/python -m benchmarks.deltas [--bytes N] [--repeats N]

Weights are random with the scale of a transformer's, and a step of AdamW with gradients of random
sign moves each fp32 master weight by about the learning rate, which is the most that it can. Times
are those of one core, as ratios to a copy of the same bytes.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from grpo_trainer.weight_delta import WeightDelta, apply, checksum, difference
from grpo_trainer.weights import Bytes, WeightBundle, buffer_bytes, layout

from .table import Spread, load, machine, table

SCALE = 0.02
"""Standard deviation of the weights."""
RATES = (1e-7, 1e-6, 5e-6, 1e-5, 1e-4)


def version(masters: torch.Tensor, number: int) -> WeightBundle:
    """The weights in bfloat16, as they are published."""
    size = 2 * masters.numel()
    entries = layout([("weights", "bfloat16", tuple(masters.shape), size)])
    data = np.zeros(buffer_bytes(entries), dtype=np.uint8)
    data[:size] = masters.bfloat16().view(torch.uint8).numpy()
    return WeightBundle(number, entries, data)


def step(masters: torch.Tensor, rate: float, generator: torch.Generator) -> torch.Tensor:
    """Masters after one step whose moments agree: each moves by the learning rate."""
    signs = torch.randint(2, masters.shape, generator=generator, dtype=torch.int8)
    return masters + rate * (2.0 * signs - 1)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def row(rate: float, size: int, repeats: int) -> list[str]:
    """One learning rate; versions follow each other, as masters drift between roundings."""
    generator = torch.Generator().manual_seed(0)
    masters = torch.randn(size // 2, generator=generator) * SCALE
    before = version(masters, 0)
    shares, changed, encoding, applying, checking = [], [], [], [], []
    for number in range(1, repeats + 1):
        masters = step(masters, rate, generator)
        after = version(masters, number)
        deltas: list[WeightDelta] = []
        encode = seconds(lambda b=before, a=after, d=deltas: d.append(difference(b, a)))
        [delta] = deltas
        target: Bytes = before.data.copy()
        copy = seconds(lambda b=before: b.data.copy())
        write = seconds(lambda d=delta, t=target: apply(d, t))
        check = seconds(lambda t=target: checksum(t))
        assert np.array_equal(target, after.data)
        words = before.data.view(np.uint16) != after.data.view(np.uint16)
        changed.append(np.count_nonzero(words) / len(words))
        shares.append(delta.size / after.data.nbytes)
        encoding.append(encode / copy)
        applying.append(write / copy)
        checking.append(check / copy)
        before = after
    return [
        f"{rate:g}",
        f"{Spread.of(changed):.1%}",
        f"{Spread.of(shares):.1%}",
        f"{Spread.of(encoding):.1f}",
        f"{Spread.of(applying):.1f}",
        f"{Spread.of(checking):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=505_000_000, help="of a version (505 MB)")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(machine("torch"))
    rows = [row(rate, arguments.bytes, arguments.repeats) for rate in RATES]
    print(f"{arguments.repeats} versions of {arguments.bytes / 1e6:.0f} MB; at the end {load()}\n")
    head = ["learning rate", "changed\nelements", "bytes of\na version", "encode\n/ copy"]
    print(table([*head, "apply\n/ copy", "checksum\n/ copy"], rows))


if __name__ == "__main__":
    main()
