"""A job that cannot run reports the reason.

Aspects: a missing image, a request that no node fits, a missing claim, missing data.
"""

from typing import Any

import pytest

from e2e.runs import START_SECONDS, Runs, quickstart
from kube.harness import MISSING_IMAGE, Object
from kube.operator_harness import condition_of, phase_of


@pytest.mark.parametrize(
    ("changes", "reasons", "text"),
    [
        pytest.param(
            {"consumers": {"image": MISSING_IMAGE}},
            ("ErrImagePull", "ImagePullBackOff"),
            MISSING_IMAGE,
            id="an image that is nowhere",
        ),
        pytest.param(
            {"consumers": {"resources": {"requests": {"cpu": "100"}}}},
            ("Unschedulable",),
            "Insufficient cpu",
            id="a request that no node can meet",
        ),
        pytest.param(
            {"storage": {"claimName": "nowhere", "size": None}},
            ("Unschedulable",),
            'persistentvolumeclaim "nowhere" not found',
            id="a claim that does not exist",
        ),
    ],
)
async def test_a_job_whose_pods_cannot_start_says_why(
    runs: Runs, changes: Object, reasons: tuple[str, ...], text: str
) -> None:
    runs.apply(quickstart("invalid", **changes))

    def is_reported(job: Object) -> Any:
        ready = condition_of(job, "ClusterReady")
        return ready["reason"] in reasons and text in ready["message"]

    job = await runs.until("invalid", is_reported)

    assert phase_of(job) == "Starting"


async def test_a_job_whose_data_does_not_exist_fails_for_good_and_names_it(runs: Runs) -> None:
    runs.apply(quickstart("invalid", dataset={"path": "nowhere.jsonl"}))

    job = await runs.jobs.until_phase("Failed", "invalid", timeout=START_SECONDS)

    failed = condition_of(job, "Failed")
    assert failed["reason"] == "BadInput"
    assert "nowhere.jsonl" in failed["message"]
    assert job["status"]["restarts"] == 0
