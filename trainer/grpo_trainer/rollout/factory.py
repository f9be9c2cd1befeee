"""The inference engines by name. Each is imported only where it runs: their libraries differ."""

from grpo_trainer.spec import Backend

from .engine import EngineOptions, RolloutEngine


def create_engine(backend: str, options: EngineOptions) -> RolloutEngine:
    """Build the engine of a backend; it holds no weights yet.

    Raises:
        ValueError: there is no engine for this backend.
    """
    if backend == Backend.TRANSFORMERS:
        from .transformers_engine import TransformersEngine

        return TransformersEngine(options)
    if backend == Backend.VLLM:
        from .vllm_engine import VllmEngine

        return VllmEngine(options)
    raise ValueError(
        f"producers.backend: no engine for {backend!r}; must be one of "
        f"{', '.join(map(str, Backend))}"
    )
