"""MLflow."""

import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import RunFailedError
from ...events import EvaluationReport, LoggedSample, Outcome, StepReport, Summary
from ...spec import GRPOJob
from ...spec.training import MlflowSpec
from ..metrics import Series
from ..paths import RunPaths
from ..sink import Sink
from .background import BackgroundCalls
from .scalars import completions_text, evaluation_scalars, hyperparameters, step_scalars

_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Unless the environment has them; the library's own retries take ten minutes."""
_FORBIDDEN = re.compile(r"[^\w\-./: ]", re.ASCII)
_BATCH = 100
"""Parameters in one call: the server's limit."""
_ENDS = {
    Outcome.SUCCEEDED: "FINISHED",
    Outcome.STOPPED: "KILLED",
    Outcome.FAILED: "FAILED",
}


_REACH_SECONDS = 5.0


class MLflow(Sink):
    """A run of an experiment; a resumed run directory continues the run in `mlflow.id`."""

    def __init__(self, job: GRPOJob, layout: RunPaths) -> None:
        """Raises RunFailedError when the server does not accept a run."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        import mlflow
        from mlflow.exceptions import MlflowException

        spec = job.spec.tracking.mlflow
        assert spec is not None
        uri = spec.tracking_uri or mlflow.get_tracking_uri()
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        try:
            self._run = self._open(job, layout)
        except MlflowException as error:
            reason = str(error).partition("\n")[0]
            raise RunFailedError(f"spec.tracking.mlflow: no run at {uri}: {reason}") from error
        self._calls = BackgroundCalls("MLflow")

    def _open(self, job: GRPOJob, layout: RunPaths) -> str:
        """The id of the run, with all hyperparameters."""
        parameters = {_name(key): value for key, value in hyperparameters(job).items()}
        if layout.mlflow_id.exists():
            run = self._client.get_run(layout.mlflow_id.read_text())
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(
                self._experiment(job.spec.tracking.project), run_name=job.metadata.name
            )
            layout.mlflow_id.write_text(run.info.run_id)
        # A parameter cannot change: that of the first start stays.
        new = [(key, value) for key, value in parameters.items() if key not in run.data.params]
        for begin in range(0, len(new), _BATCH):
            self._client.log_batch(run.info.run_id, params=_params(new[begin : begin + _BATCH]))
        identifier: str = run.info.run_id
        return identifier

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        identifier: str = found.experiment_id if found else self._client.create_experiment(name)
        return identifier

    def step(self, report: StepReport, values: Mapping[Series, float]) -> None:
        self._log(step_scalars(values), report.step)

    def evaluation(self, report: EvaluationReport) -> None:
        self._log(evaluation_scalars(report), report.step)

    def rollouts(self, step: int, samples: Sequence[LoggedSample]) -> None:
        text, path = completions_text(samples), f"rollouts/step_{step}.md"
        self._calls.submit(lambda: self._client.log_text(self._run, text, path))

    def finish(self, summary: Summary) -> None:
        status = _ENDS[summary.outcome]
        self._calls.submit(lambda: self._client.set_terminated(self._run, status))

    def close(self) -> None:
        self._calls.close()

    def _log(self, scalars: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_name(tag), value, now, step) for tag, value in scalars.items()]
        self._calls.submit(lambda: self._client.log_batch(self._run, metrics=metrics))


def check_reachable(spec: MlflowSpec) -> None:
    """Ask the server for its health, if the runs are kept by one. Raises RunFailedError."""
    uri = spec.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_REACH_SECONDS):
            pass
    except urllib.error.HTTPError:
        return  # a server answers, perhaps one that wants a password
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RunFailedError(f"spec.tracking.mlflow: no answer from {uri}: {reason}") from error


def _name(text: str) -> str:
    """With an underscore for each character that MLflow refuses in a name."""
    return _FORBIDDEN.sub("_", text)


def _params(pairs: Sequence[tuple[str, object]]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(key, str(value)) for key, value in pairs]
