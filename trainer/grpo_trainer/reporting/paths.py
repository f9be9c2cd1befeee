"""Where the files of a run lie."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import quote

from ..errors import InvalidInputError
from ..options import RunOptions


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The run directory, and the folders that may lie elsewhere."""

    root: Path
    checkpoints: Path
    evaluations: Path
    rollouts: Path

    @classmethod
    def of(cls, options: RunOptions) -> "RunPaths":
        """Folders as the options say, else `checkpoints/`, `eval/`, `rollouts/` of the run."""
        root = options.run_dir
        return cls(
            root=root,
            checkpoints=options.checkpoint_dir or root / "checkpoints",
            evaluations=options.evaluation_dir or root / "eval",
            rollouts=options.rollout_dir or root / "rollouts",
        )

    @property
    def spec(self) -> Path:
        """The manifest that the run follows."""
        return self.root / "spec.json"

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
        """Identity under which Weights & Biases continues the run."""
        return self.root / "wandb.id"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def endpoint(self) -> Path:
        """URL of the running driver; absent when none runs."""
        return self.root / "endpoint"

    @property
    def drain_token(self) -> Path:
        """Token for `POST /drain` of the running driver, readable by its owner alone."""
        return self.root / "drain.token"

    def evaluation(self, dataset: str, step: int) -> Path:
        """Completions of one evaluation; the name is percent-encoded, so it cannot leave the
        folder."""
        return self.evaluations / f"{quote(dataset, safe='')}_step_{step}.jsonl"

    def rollout(self, step: int) -> Path:
        return self.rollouts / f"step_{step}.jsonl"

    def create(self) -> None:
        """Make the folders, with a link in the run directory to each that lies elsewhere.

        The link is what a later start finds without being told. Raises InvalidInputError for a
        folder that cannot be made or written to.
        """
        for folder in (self.root, self.checkpoints, self.evaluations, self.rollouts, self.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise InvalidInputError(
                    f"directory {folder}: cannot be written to: {error.strerror}"
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
