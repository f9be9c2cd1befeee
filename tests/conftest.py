"""Settings for every test."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Machines of tests are busy: a slow example is no fault, and timings are for benchmarks.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

# Many threads on few cores spend their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray reads its token once a process: every test that starts a Ray in this one has the same.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "token-of-the-tests")
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

REAL_CLUSTERS = (
    "kube",
    "trainer/test_elastic.py",
    "trainer/test_job_monitoring.py",
    "trainer/test_runs.py",
    "trainer/test_weight_delivery.py",
    "vllm_producers",
)
ONE_AFTER_ANOTHER = ("tests/trainer/", "tests/vllm_producers/")
"""What computes. The rest mostly waits for a cluster."""


class _Lanes(LoadScopeScheduling):
    """Of two workers one has all tests that compute; a file of the rest goes to who is free."""

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
