"""One run at a time in a run directory; a second one may be retried."""

from pathlib import Path

import pytest

from grpo_trainer.driver.exclusive import only_run_in
from grpo_trainer.errors import RunFailedError


def test_a_second_run_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with (
        only_run_in(tmp_path / "run"),
        pytest.raises(RunFailedError, match="in use by another run"),
        only_run_in(tmp_path / "run"),
    ):
        pass


def test_a_directory_is_free_again_after_its_run(tmp_path: Path) -> None:
    for _ in range(2):
        with only_run_in(tmp_path / "run"):
            pass
