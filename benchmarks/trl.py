"""TRL's GRPOTrainer as a run of the pipeline benchmark, in a child process."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_trainer.builtin import addition_rows, default_cache, resolve_model_path
from grpo_trainer.spec import RewardType

PYTHON = Path(".venv-trl/bin/python")
SCRIPT = Path(__file__).with_name("trl_run.py")


@dataclass(frozen=True, slots=True)
class OtherTrainer:
    """The measurements that another trainer reports."""

    samples_per_second: float
    reward: float
    """Mean of the last steps."""


def run(manifest: Mapping[str, Any], last_steps: int, *, seconds: float) -> OtherTrainer:
    """Train on the task of a manifest, with its sizes and rates.

    Raises RuntimeError when it fails, or has not ended after `seconds`.
    """
    spec = manifest["spec"]
    model = resolve_model_path(spec["model"]["path"], RewardType.BOXED, default_cache())
    task = {
        "model": model,
        "rows": [
            {"question": row["messages"][0]["content"], "answer": row["gt_answer"]}
            for row in addition_rows("train")
        ],
        "steps": spec["maxSteps"],
        "prompts": spec["batch"]["trainBatchSize"],
        "generations": spec["sampling"]["numGenerations"],
        "tokens": spec["sampling"]["maxNewTokens"],
        "learning_rate": spec["algorithm"]["learningRate"],
        "seed": spec.get("seed", 42),
        "last_steps": last_steps,
    }
    environment = {
        **os.environ,
        # At this size more threads only wait for each other.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "HF_HUB_OFFLINE": "1",
    }
    try:
        done = subprocess.run(
            # The directory of the script has a module with the name of a standard one.
            [str(PYTHON), "-P", str(SCRIPT)],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"TRL: not ended after {seconds:g} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"TRL: exit code {done.returncode}:\n{done.stderr[-3000:]}")
    return OtherTrainer(**json.loads(done.stdout.splitlines()[-1]))
