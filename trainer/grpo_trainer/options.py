"""The placement of a run on this machine; the spec has all else."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Locations and addresses of one run."""

    run_dir: Path
    checkpoint_dir: Path | None = None
    """None: `checkpoints/` of the run directory; likewise below."""
    evaluation_dir: Path | None = None
    rollout_dir: Path | None = None
    host: str = "127.0.0.1"
    """Where `/metrics`, `/progress` and `/drain` are served."""
    advertised_host: str | None = None
    """Address in the file `endpoint`, for other pods; that of `host` when absent."""
    port: int = 9464
    """0, or a port in use, takes a free one."""
    token: str | None = None
    """Bearer token of `/drain`; a random one is written to the run directory when absent."""
    ray_address: str | None = None
    """None starts a local Ray; `auto` joins the cluster of this process."""
    ray_temp_dir: Path | None = None
    master_port: int | None = None
    """Rendezvous port of the consumers; a free one when absent."""
    linger_seconds: float = 0.0
    """How long the end of the run stays readable at `/progress`, until it is read once."""
    skip_checks: bool = False
    """Do not call services of the reward before the run starts."""
    attempt: int = 0
