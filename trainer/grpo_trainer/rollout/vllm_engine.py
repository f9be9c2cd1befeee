"""Rollouts by vLLM: continuous batching, paged attention, tensor parallelism."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from grpo_trainer.messages import GenerationRequest, Rollout
from grpo_trainer.transport.plan import GroupMember
from grpo_trainer.weights import WeightBundle

from .completion_gate import CompletionGate
from .end_of_turn import end_of_turn_ids
from .engine import EngineClosedError, EngineOptions
from .vllm_weights import (
    LOST,
    MISMATCH,
    UNTOUCHED,
    WORKER_CLASS,
    Shapes,
    SharedWeights,
    check_shapes,
    version_of,
)

SHUTDOWN_SECONDS = 10.0
"""For the engine's processes to end before they are killed."""


class VllmEngine:
    """A RolloutEngine.

    With `in_flight_updates` new weights interrupt completions, which continue with them after
    their tokens so far were read again; else new weights wait for the completions under way, and
    new prompts wait for the weights.
    """

    def __init__(self, options: EngineOptions) -> None:
        _set_environment(options)  # vLLM looks at it while it is imported
        from vllm.v1.engine.async_llm import AsyncLLM

        self._options = options
        with _portable_errors():
            self._llm = AsyncLLM.from_engine_args(_engine_args(options))
        self._tokenizer = self._llm.get_tokenizer()
        self._eos_ids = _end_of_sequence_ids(self._llm.model_config, self._tokenizer)
        self._shapes: Shapes | None = None
        self._version: int | None = None
        self._loading = asyncio.Lock()
        self._gate = CompletionGate(
            in_flight_updates=options.in_flight_updates, max_completions=_max_sequences(options)
        )
        self._answers: set[asyncio.Task[Rollout]] = set()
        self._closed = False

    @property
    def version(self) -> int | None:
        return self._version

    @property
    def busy_seconds(self) -> float:
        return self._gate.busy_seconds

    async def ready(self) -> None:
        await self._ask("end_with", os.getpid())

    async def generate(self, request: GenerationRequest) -> Rollout:
        self._check_open()
        answer = asyncio.create_task(self._answer(request))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        try:
            return await answer
        except asyncio.CancelledError:
            self._check_open()
            raise

    async def load_weights(self, bundles: Sequence[WeightBundle]) -> float:
        self._check_open()
        async with self._loading:
            version = version_of(bundles)
            entries = [entry for bundle in bundles for entry in bundle.entries]
            shapes = check_shapes(entries, self._shapes)
            weights = await asyncio.to_thread(SharedWeights, bundles)
            try:
                async with self._gate.drained():
                    seconds = await self._switch(version, "write_weights", *weights.handle)
            finally:
                weights.close()
            self._shapes = shapes
        return seconds

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        self._check_open()
        entries = [entry for member in members for entry in member.stage.entries]
        _check(await self._ask("join_group", [member.plain() for member in members]))
        # Not before: the others would wait for one that stays away.
        self._shapes = check_shapes(entries, self._shapes)

    async def receive_weights(self, version: int) -> float:
        self._check_open()
        async with self._loading, self._gate.drained():
            return await self._switch(version, "receive_weights", version)

    async def close(self) -> None:
        self._closed = True
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()  # it would report the engine's end as a failure
        await asyncio.to_thread(self._llm.shutdown, SHUTDOWN_SECONDS)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine was closed")

    async def _answer(self, request: GenerationRequest) -> Rollout:
        from vllm import TokensPrompt

        from .vllm_requests import rollout, sampling_params

        limit = self._llm.model_config.max_model_len
        assert len(request.prompt_ids) + request.sampling.max_new_tokens <= limit
        prompt = TokensPrompt(prompt_token_ids=request.prompt_ids.tolist())
        params = sampling_params(request, self._eos_ids)
        async with self._gate.running(request.num_samples):
            with _portable_errors():
                stream = self._llm.generate(prompt, params, request.request_id)
                [output] = [output async for output in stream]
        return rollout(request, output, self._tokenizer)

    async def _switch(self, version: int, method: str, *arguments: Any) -> float:
        """Have the workers replace the weights, and forget what was computed with the old ones.

        Without whole weights nothing is generated: what is under way rests until there are some.
        """
        began = time.perf_counter()
        with self._gate.paused(), _portable_errors():
            await self._llm.pause_generation(mode="keep", clear_cache=True)
            fault = await self._ask(method, *arguments)
            if not fault:
                await self._llm.update_weight_version(str(version))
                self._version = version
            elif not fault.startswith(UNTOUCHED):
                self._version = None
            self._gate.has_weights = self._version is not None
            if self._version is not None:
                await self._llm.resume_generation()
        _check(fault)
        return time.perf_counter() - began

    async def _ask(self, method: str, *arguments: Any) -> str:
        """Call a method of the workers'; returns the worst fault that they report, or nothing."""
        faults: list[str] = await self._llm.collective_rpc(method, args=arguments)
        worst = max(faults, key=lambda fault: (bool(fault), not fault.startswith(UNTOUCHED)))
        alike = len({bool(fault) for fault in faults}) == 1
        # What only some of them have is lost.
        return worst if alike else f"{LOST}: {worst}"


def _check(fault: str) -> None:
    """Raise what a worker reports."""
    if fault:
        raise (ValueError if fault.startswith(MISMATCH) else RuntimeError)(fault)


@contextmanager
def _portable_errors() -> Iterator[None]:
    """Errors that a process without vLLM can understand."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        if library not in ("vllm", "pydantic_core"):
            raise
        kind = ValueError if isinstance(error, ValueError) else RuntimeError
        raise kind(f"vLLM: {type(error).__name__}: {error}") from error


def _set_environment(options: EngineOptions) -> None:
    """What vLLM reads from the environment; it is inherited by its processes."""
    defaults = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if options.device == "cpu":
        # No process for the only worker, and no compiler at the first completion.
        defaults |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1"}
        if options.tensor_parallel_size > 1:  # else vLLM wants a NUMA node for each worker
            defaults |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _max_sequences(options: EngineOptions) -> int:
    return max(options.microbatch, options.microbatch_completions)


def _engine_args(options: EngineOptions) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    on_cpu = options.device == "cpu"
    memory = (
        {"kv_cache_memory_bytes": options.cpu_cache_bytes}
        if on_cpu
        else {"gpu_memory_utilization": options.gpu_memory_utilization}
    )
    return AsyncEngineArgs(
        model=options.model_path,
        tokenizer=options.tokenizer_path,
        trust_remote_code=options.trust_remote_code,
        dtype=options.dtype,
        load_format="dummy",
        max_model_len=options.max_tokens,
        max_num_seqs=_max_sequences(options),
        tensor_parallel_size=options.tensor_parallel_size,
        # In a Ray actor vLLM would look for workers elsewhere in the cluster.
        distributed_executor_backend="mp" if options.tensor_parallel_size > 1 else "uni",
        enforce_eager=on_cpu,
        logprobs_mode="processed_logprobs",
        worker_extension_cls=WORKER_CLASS,
        disable_log_stats=True,
        **memory,
    )


def _end_of_sequence_ids(model_config: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a completion: of the configurations, the tokenizer, the template."""
    ids: set[int] = set(end_of_turn_ids(tokenizer))
    for source in (
        model_config.hf_text_config.eos_token_id,
        model_config.try_get_generation_config().get("eos_token_id"),
        tokenizer.eos_token_id,
    ):
        ids.update(source if isinstance(source, list) else [] if source is None else [source])
    # vLLM refuses a token that its model cannot draw.
    return frozenset(i for i in ids if i < model_config.get_vocab_size())
