"""Settings for every test, and where the time went."""

import collections
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Test machines are busy: a slow example is not a failure.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

# More threads than cores only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray reads its token once per process, so every Ray of a test process has the same one.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "token-of-the-tests")
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

REAL_CLUSTERS = (
    "fsdp",
    "kube",
    "trainer/test_consumer_layouts.py",
    "trainer/test_consumer_numerics.py",
    "trainer/test_elastic.py",
    "trainer/test_job_monitoring.py",
    "trainer/test_memory_forecast.py",
    "trainer/test_optimizer_settings.py",
    "trainer/test_run_failures.py",
    "trainer/test_runs.py",
    "trainer/test_weight_delivery.py",
    "vllm_producers",
)
ONE_AFTER_ANOTHER = ("tests/trainer/", "tests/vllm_producers/")
"""Tests that compute. The others mostly wait for a cluster."""
SLOWEST_FILES = 15


class _Lanes(LoadScopeScheduling):
    """One of two workers runs all tests that compute; the files of the rest go to a free one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "computes" if path.startswith(ONE_AFTER_ANOTHER) else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Many real processes against deadlines may fail once on a busy machine, but not twice."""
    tests = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(tests / place) for place in REAL_CLUSTERS):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The time of each stage of `make test`, each folder and the slowest files."""
    seconds: collections.Counter[str] = collections.Counter()
    lanes: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
                lanes[getattr(report, "worker_id", "main")] += report.duration
    stages = os.environ.get("TEST_STAGES")
    if len(lanes) < 2:
        return
    folders: collections.Counter[str] = collections.Counter()
    for file, spent in seconds.items():
        folders["/".join(Path(file).parts[:2])] += spent
    terminalreporter.section("where the time went")
    if stages and Path(stages).exists():
        terminalreporter.write(Path(stages).read_text())
    for times in (lanes, folders, dict(seconds.most_common(SLOWEST_FILES))):
        terminalreporter.line("")
        for name, spent in sorted(times.items(), key=lambda item: -item[1]):
            terminalreporter.line(f"{spent:8.1f} s  {name}")
