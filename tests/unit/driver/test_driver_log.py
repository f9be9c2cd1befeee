"""The driver's log file: reports and records, bounded, silent on a full disk."""

import logging
from pathlib import Path

from grpo_trainer.driver import driver_log as module
from grpo_trainer.driver.driver_log import driver_log

_log = logging.getLogger("grpo_trainer.driver.loop")


def test_reports_and_records_are_written_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    with driver_log(path) as reports:
        reports.write("step 1/2  reward 0.5\n")
        _log.info("the consumers were lost")
        logging.getLogger("other.library").debug("detail")
    lines = path.read_text().splitlines()
    assert [line.partition(" INFO ")[2] for line in lines] == [
        "grpo_trainer.reports: step 1/2  reward 0.5",
        "grpo_trainer.driver.loop: the consumers were lost",
    ]


def test_a_resumed_run_appends(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    for number in range(2):
        with driver_log(path) as reports:
            reports.write(f"attempt {number}\n")
    assert path.read_text().count("attempt") == 2


def test_its_size_is_bounded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    with driver_log(tmp_path / "driver.log") as reports:
        for number in range(1000):
            reports.write(f"line {number}\n")
    files = list(tmp_path.iterdir())
    assert len(files) == 1 + module.BACKUPS
    assert all(file.stat().st_size <= 1000 for file in files)


def test_nothing_stays_installed(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    with driver_log(tmp_path / "driver.log"):
        pass
    assert logging.getLogger().handlers == before


def test_a_full_disk_prints_nothing(capsys) -> None:
    with driver_log(Path("/dev/full")) as reports:
        reports.write("step 1/2\n")
    assert capsys.readouterr() == ("", "")
