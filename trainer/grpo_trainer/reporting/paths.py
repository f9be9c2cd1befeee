"""The files of a run directory."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import quote

from ..errors import InvalidInputError
from ..options import RunOptions


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The run directory, and the directories that may be elsewhere."""

    root: Path
    checkpoints: Path
    evaluations: Path
    rollouts: Path

    @classmethod
    def of(cls, options: RunOptions) -> "RunPaths":
        """Directories as in the options, by default `checkpoints/`, `eval/` and `rollouts/`."""
        root = options.run_dir
        return cls(
            root=root,
            checkpoints=options.checkpoint_dir or root / "checkpoints",
            evaluations=options.evaluation_dir or root / "eval",
            rollouts=options.rollout_dir or root / "rollouts",
        )

    @property
    def spec(self) -> Path:
        """The manifest of the run."""
        return self.root / "spec.json"

    @property
    def environment(self) -> Path:
        """What the newest start ran on."""
        return self.root / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def wandb_id(self) -> Path:
        """Run id of Weights & Biases, for resuming."""
        return self.root / "wandb.id"

    @property
    def mlflow_id(self) -> Path:
        """Run id of MLflow, for resuming."""
        return self.root / "mlflow.id"

    @property
    def trackio_id(self) -> Path:
        """End of the run's name in Trackio, for resuming."""
        return self.root / "trackio.id"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def endpoint(self) -> Path:
        """URL of the running driver; absent when there is none."""
        return self.root / "endpoint"

    @property
    def drain_token(self) -> Path:
        """Token of the running driver for `POST /drain`, readable by its owner only."""
        return self.root / "drain.token"

    def evaluation(self, dataset: str, step: int) -> Path:
        """Completions of one evaluation; the name is percent-encoded: it stays in the directory."""
        return self.evaluations / f"{quote(dataset, safe='')}_step_{step}.jsonl"

    def rollout(self, step: int) -> Path:
        return self.rollouts / f"step_{step}.jsonl"

    def complete_checkpoints(self) -> dict[int, Path]:
        """The complete checkpoints by step."""
        found = self.checkpoints.glob("step-*/COMPLETE")
        return {int(path.parent.name.removeprefix("step-")): path.parent for path in found}

    def create(self) -> None:
        """Create the directories, and a link in the run directory to each that is elsewhere.

        A later start without these options follows the links. Raises InvalidInputError for a
        directory that cannot be created or written to.
        """
        for folder in (self.root, self.checkpoints, self.evaluations, self.rollouts, self.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise InvalidInputError(
                    f"directory {folder}: cannot write to it: {error.strerror}"
                ) from error
        places = {
            "checkpoints": self.checkpoints,
            "eval": self.evaluations,
            "rollouts": self.rollouts,
        }
        for name, folder in places.items():
            link = self.root / name
            if not link.exists():
                link.symlink_to(folder.resolve())
