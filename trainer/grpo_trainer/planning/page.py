"""The forecast as text."""

from .architecture import Architecture
from .forecast import Forecast

_MIB, _GIB = 1 << 20, 1 << 30


def page(found: Forecast, model: Architecture, sequences: int | None = None) -> str:
    """A table of all parts of the forecast.

    `sequences` is the number of full-length sequences that vLLM generates at the same time.
    """
    consumer, producer = found.consumer, found.producer
    cache = "KV cache of one sequence" if producer.paged else "KV cache"
    sections: list[tuple[str, int | None, list[tuple[str, int]]]] = [
        (
            "consumer process",
            consumer.peak,
            [
                ("weights", consumer.weights),
                ("gradients", consumer.gradients),
                ("fp32 master weights", consumer.masters),
                ("Adam moments", consumer.moments),
                ("reference policy", consumer.reference),
                ("communication buffers", consumer.buckets),
                ("CUDA context, fragmentation", consumer.overhead),
                ("backward pass: activations", consumer.activations),
                ("backward pass: logits", consumer.logits),
                ("optimizer step: fp32 gradients", consumer.update),
            ],
        ),
        (
            "producer process",
            producer.peak,
            [
                ("weights", producer.weights),
                (cache, producer.kv_cache),
                ("CUDA context, fragmentation", producer.overhead),
            ],
        ),
        (
            "hosts and volume",
            None,
            [
                ("consumer pod while models load", found.loading),
                ("weights to publish, first consumers", found.weight_buffer),
                ("weights that deltas apply to, per producer", found.mirror),
                ("object store, per node", found.object_store),
                ("one checkpoint", found.checkpoint),
                ("volume for checkpoints", found.volume),
            ],
        ),
    ]
    lines = [f"{model.model_type} with {_count(found.parameters)} parameters"]
    for title, total, parts in sections:
        lines += ["", _line(title, total) if total is not None else title]
        lines += [_line(f"  {name}", size) for name, size in parts if size > 0]
    if sequences is not None:
        lines += ["", f"vLLM generates {sequences} sequences of full length at the same time"]
    return "\n".join(lines)


def _line(name: str, size: int) -> str:
    amount = f"{size / _GIB:.2f} GiB" if size >= _GIB / 10 else f"{size / _MIB:.2f} MiB"
    return f"{name:38}{amount:>12}"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2f} billion"
    return f"{parameters / 1e6:.2f} million"
