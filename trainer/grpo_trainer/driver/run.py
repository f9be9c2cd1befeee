"""The phases of a run in one process: prepare, start Ray, train, summarize."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TextIO

from grpo_trainer.builtin import OnProgress
from grpo_trainer.environment import check_vllm_python, producer_python
from grpo_trainer.environments.running import RunningEnvironment, running_environment
from grpo_trainer.events import Outcome, Summary
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import Reporter, RunPaths, open_reporter
from grpo_trainer.rewards import Scorers, code_protection
from grpo_trainer.spec import ExitCode, GRPOJob, GRPOJobSpec, resolve_plan

from .assemble import Placement, assemble, autoscaler_of, evaluator_of, producer_pool
from .checkpoints import Checkpoint, CheckpointStore, read_checkpoint
from .disk import check_space
from .driver_log import REPORTS, driver_log
from .engine_check import EngineCheck
from .exclusive import only_run_in
from .failures import classify
from .finished import finished_message
from .loop import TrainingLoop
from .prepare import Prepared, prepare
from .ray_session import cluster_only_environment, plain_environment, ray_session
from .run_view import RunView
from .signals import StopSignals
from .step_recorder import StepRecorder, restored_ledger
from .step_runner import StepRunner

_log = logging.getLogger(__name__)

MAX_SCORING_PROCESSES = 8


def run(job: GRPOJob, options: RunOptions, signals: StopSignals) -> int:
    """As `grpo_trainer.driver.run`; raises RunFailedError where a retry may succeed."""
    began = time.monotonic()
    paths = RunPaths.of(options)
    with only_run_in(options.run_dir):
        message = finished_message(job.spec, paths)
        if message is not None:
            print(message)
            return ExitCode.SUCCESS
        with driver_log(paths.root / "driver.log") as log:
            return asyncio.run(_run(job, options, signals, log, began))


async def _run(
    job: GRPOJob, options: RunOptions, signals: StopSignals, log: TextIO, began: float
) -> int:
    drain, paths = asyncio.Event(), RunPaths.of(options)

    async def stacks() -> Path:
        return await run_.view.write_stacks()

    async with open_reporter(job, options, drain.set, stacks, log=log) as reporter:
        run_ = _Run(job.spec, options, reporter, drain, signals)

        def stop() -> None:
            reporter.draining()
            drain.set()

        signals.attach(stop, remove=(paths.endpoint, paths.drain_token))
        outcome, message = Outcome.FAILED, ""
        try:
            await run_.execute()
            outcome = Outcome.SUCCEEDED if run_.complete else Outcome.STOPPED
        except BaseException as error:
            cause = classify(error, paths.root)
            message = str(cause) or repr(cause)
            logging.getLogger(REPORTS).error("the run failed", exc_info=error)
            if cause is error:
                raise
            raise cause from error
        finally:
            summary = run_.view.summary(outcome, message, time.monotonic() - began)
            _finish(reporter, summary)
    return ExitCode.STOPPED if outcome is Outcome.STOPPED else ExitCode.SUCCESS


def _finish(reporter: Reporter, summary: Summary) -> None:
    """Write the summary; where that fails the run has failed before, and its error counts."""
    try:
        reporter.finish(summary)
    except OSError as error:
        _log.error("the summary could not be written: %s", error)
        if summary.outcome is not Outcome.FAILED:
            raise


class _DrainedError(Exception):
    """A stop was requested before training began."""


class _Run:
    """One run in one process."""

    def __init__(
        self,
        spec: GRPOJobSpec,
        options: RunOptions,
        reporter: Reporter,
        drain: asyncio.Event,
        signals: StopSignals,
    ) -> None:
        self._spec = spec
        self._options = options
        self._reporter = reporter
        self._drain = drain
        self._signals = signals
        self._paths = RunPaths.of(options)
        self._store = CheckpointStore(self._paths.checkpoints, spec.checkpoint.keep_last)
        self.view = RunView(spec, reporter, self._paths, self._store)
        self.complete = False

    async def execute(self) -> None:
        """Everything from reading the data to the last checkpoint."""
        spec = self._spec
        # Custom rewards may read these; in a cluster the pods have them already.
        os.environ.update(plain_environment(spec))
        origin = self._store.newest()
        if origin is None and spec.checkpoint.resume_from is not None:
            origin = read_checkpoint(Path(spec.checkpoint.resume_from))
        if self._options.ray_address is None:
            for warning in cluster_only_environment(spec):
                self._reporter.message(warning)
        async with AsyncExitStack() as stack:
            environment = None
            if spec.environment is not None:
                self._reporter.message("reaching the environment")
                log = self._paths.logs / "environment.log"
                environment = await stack.enter_async_context(
                    running_environment(spec.environment, log)
                )
            await self._prepare_and_train(origin, environment)

    async def _prepare_and_train(
        self, origin: Checkpoint | None, environment: RunningEnvironment | None
    ) -> None:
        spec = self._spec
        self._reporter.message("reading the data and the model")
        try:
            prepared = await asyncio.to_thread(
                prepare,
                spec,
                self._on_warm_up(),
                environment,
                skip_checks=self._options.skip_checks,
            )
            for line in resolve_plan(spec, len(prepared.train.prompts)).lines():
                self._reporter.message(line)
        except _DrainedError:
            return
        self._reporter.code_protection(await asyncio.to_thread(code_protection, spec))
        self.view.total_steps = prepared.total_steps
        if self._drain.is_set():
            return
        python = self._producer_python()
        if python is not None:
            await asyncio.to_thread(check_vllm_python, python)
        check_space(spec, prepared, self._paths.checkpoints, len(self._store.complete()))
        self._reporter.message("starting Ray")
        workers = min(MAX_SCORING_PROCESSES, max(1, (os.cpu_count() or 1) // 2))
        scorers = Scorers(spec, workers)
        session = ray_session(spec, self._options, self._paths.logs)
        try:
            with ExitStack() as stack:
                # In a thread: signals and `/progress` are served while Ray starts.
                await asyncio.to_thread(stack.enter_context, session)
                self._signals.restore()
                await scorers.start()
                if not self._drain.is_set():
                    await self._train(prepared, origin, scorers)
        finally:
            await scorers.close()

    def _producer_python(self) -> Path | None:
        """The producers' interpreter on this machine; in a cluster it is that of their image."""
        local = self._options.ray_address is None
        return producer_python(self._spec) if local else None

    def _on_warm_up(self) -> OnProgress:
        """Report the training of a built-in model, from its thread, and end it on a drain."""
        loop = asyncio.get_running_loop()

        def progress(step: int, total: int, accuracy: float) -> None:
            if self._drain.is_set():
                raise _DrainedError
            text = f"training the built-in model: {step}/{total}, accuracy {accuracy:.3f}"
            loop.call_soon_threadsafe(self._reporter.message, text)

        return progress

    async def _train(self, prepared: Prepared, origin: Checkpoint | None, scorers: Scorers) -> None:
        placement, view = Placement(self._options, self._paths, self._store), self.view
        shared = (self._spec, placement, prepared, origin, scorers.training)
        context = assemble(*shared, self._reporter, view.report_workers)
        view.consumers = context.consumers
        pool = producer_pool(context, placement, self._producer_python(), view.pool_events())
        view.pool = pool
        engines = EngineCheck(context, pool)
        ledger = restored_ledger(origin)
        recorder = StepRecorder(context, pool, engines, autoscaler_of(self._spec), ledger)
        step = origin.step if origin else 0
        evaluator = evaluator_of(context, scorers.evaluation)
        steps = StepRunner(context, pool, evaluator, recorder, engines, step)
        view.loop = loop = TrainingLoop(context, pool, steps, origin, self._drain)
        producing = asyncio.create_task(pool.run())
        training = asyncio.create_task(loop.run())
        try:
            # The pool ends by itself only with an error that ends the run.
            await asyncio.wait({producing, training}, return_when=asyncio.FIRST_COMPLETED)
            if producing.done():
                await producing
            await training
            self.complete = not self._drain.is_set() or loop.step >= prepared.total_steps
        finally:
            view.ending = True
            context.buffer.close()
            for task in (training, producing):
                task.cancel()
            await asyncio.wait({training, producing})
            pool.kill()
            context.consumers.kill()
