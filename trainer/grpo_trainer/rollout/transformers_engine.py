"""Rollouts by transformers in this process: runs wherever torch does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from transformers import AutoTokenizer
from transformers import PreTrainedTokenizerBase as Tokenizer

from grpo_trainer.messages import Completion, FinishReason, GenerationRequest, Rollout
from grpo_trainer.transport.group import BroadcastAbortedError, WeightReceiver
from grpo_trainer.transport.plan import GroupMember
from grpo_trainer.weights import WeightBundle

from .decoding import Decoded, StopCondition, decode
from .engine import EngineClosedError, EngineOptions
from .model import (
    build_model,
    check_tensors,
    end_of_sequence_ids,
    write_tensors,
    write_weights,
)
from .queueing import PendingRequest, split_microbatch
from .stopwatch import Stopwatch

T = TypeVar("T")


class TransformersEngine:
    """A RolloutEngine. Weights change between micro-batches, so all of a completion is of one
    version.

    A micro-batch starts at once with the requests that are there, as far as they go together.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._model = build_model(options)
        self._tokenizer = AutoTokenizer.from_pretrained(
            options.tokenizer_path, trust_remote_code=options.trust_remote_code
        )
        self._eos_ids = end_of_sequence_ids(options, self._model, self._tokenizer)
        self._stop_conditions: dict[tuple[tuple[str, ...], tuple[int, ...]], StopCondition] = {}
        self._version: int | None = None
        self._receiver: WeightReceiver | None = None
        # One thread runs everything of torch; micro-batches and weights take turns on it, in the
        # order of arrival, so that no forward pass sees half a version.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._turn = asyncio.Lock()
        self._queue: list[PendingRequest] = []
        self._running: list[PendingRequest] = []
        self._worker: asyncio.Task[None] | None = None
        self._busy = Stopwatch()
        self._closed = False

    @property
    def version(self) -> int | None:
        return self._version

    @property
    def busy_seconds(self) -> float:
        return self._busy.seconds

    async def ready(self) -> None:
        self._check_open()

    async def generate(self, request: GenerationRequest) -> Rollout:
        self._check_open()
        pending = PendingRequest(request)
        self._queue.append(pending)
        self._wake()
        return await pending.answer

    async def load_weights(self, bundles: Sequence[WeightBundle]) -> float:
        async with self._turn:
            began = time.perf_counter()
            self._version = await self._in_thread(write_weights, self._model, bundles)
            seconds = time.perf_counter() - began
        self._wake()
        return seconds

    async def join_group(self, members: Sequence[GroupMember]) -> None:
        self._receiver = None  # the sockets of a group that is over
        # Not in the engine's thread: completions continue while the group is formed.
        receiver = await asyncio.to_thread(WeightReceiver, members, 0, self._model.device)
        check_tensors(self._model, receiver.entries)
        self._receiver = receiver

    async def receive_weights(self, version: int) -> float:
        async with self._turn:
            began = time.perf_counter()
            await self._in_thread(self._receive, version)
            self._version = version
            seconds = time.perf_counter() - began
        self._wake()
        return seconds

    async def close(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
        for pending in (*self._running, *self._queue):
            if not pending.answer.done():
                pending.answer.set_exception(EngineClosedError("the engine was closed"))
        self._queue.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine was closed")

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _wake(self) -> None:
        """Work through the queue, unless that is under way or there are no weights yet."""
        if self._worker is None and self._queue and self._version is not None:
            self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._queue:
                async with self._turn:
                    if self._version is None:
                        return  # lost on their way; the next ones wake it again
                    self._running, self._queue = split_microbatch(
                        self._queue, self._options.microbatch, self._options.microbatch_completions
                    )
                    if self._running:
                        await self._answer(self._running)
        finally:
            self._worker = None

    async def _answer(self, batch: Sequence[PendingRequest]) -> None:
        requests = [pending.request for pending in batch]
        try:
            with self._busy:
                rollouts = await self._in_thread(self._rollouts, requests, self._version)
        except Exception as error:  # whoever asked has to know, whatever it is
            for pending in batch:
                if not pending.answer.done():
                    pending.answer.set_exception(error)
            return
        for pending, rollout in zip(batch, rollouts, strict=True):
            if not pending.answer.done():
                pending.answer.set_result(rollout)

    def _receive(self, number: int) -> None:
        receiver = self._receiver
        if receiver is None:
            raise BroadcastAbortedError("in no group")
        receiver.handshake(number)
        # From here to the end the weights are of two versions.
        self._version = None
        write_tensors(self._model, receiver.tensors(keep=False))

    def _rollouts(self, requests: Sequence[GenerationRequest], version: int) -> list[Rollout]:
        sampling = requests[0].sampling
        ends = sampling.stop_strings, sampling.stop_token_ids
        if ends not in self._stop_conditions:
            ids = self._eos_ids.union(sampling.stop_token_ids)
            self._stop_conditions[ends] = StopCondition(ids, ends[0], self._tokenizer)
        decoded = decode(self._model, requests, self._stop_conditions[ends])
        completions = iter(_completions(decoded, version, self._tokenizer))
        return [
            Rollout(r.request_id, tuple(next(completions) for _ in range(r.num_samples)))
            for r in requests
        ]


def _completions(decoded: Decoded, version: int, tokenizer: Tokenizer) -> list[Completion]:
    tokens = decoded.tokens.cpu().numpy().astype(np.int32)
    logprobs = decoded.logprobs.cpu().numpy()
    lengths = decoded.lengths.tolist()
    texts = tokenizer.batch_decode(
        [row[:length] for row, length in zip(tokens, lengths, strict=True)],
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    return [
        Completion(
            # Copies: a view would keep the whole micro-batch alive, and be sent with it.
            token_ids=tokens[row, :length].copy(),
            logprobs=logprobs[row, :length].copy(),
            versions=np.full(length, version, dtype=np.int32),
            text=texts[row],
            finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        )
        for row, (length, stopped) in enumerate(zip(lengths, decoded.stopped.tolist(), strict=True))
    ]
