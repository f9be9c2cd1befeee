"""The pod that reads a volume of a job without running pods: its rights, its lifetime, and the
reasons why it does not run."""

import pytest

from grpo_kubectl.checkpoints import VOLUME, directory
from grpo_kubectl.errors import CommandError
from grpo_kubectl.shell import RAY_CONTAINER
from grpo_kubectl.volume import DEFAULT_IMAGE, reader_pod, why_waiting
from grpo_operator.model.observed import Role
from grpo_operator.render.pods import pod_template
from grpo_operator.settings import Settings
from support.observations import UID, job


def body(image=None, **fields):
    return reader_pod(job(**fields), image, 300.0)


def test_it_mounts_the_jobs_claim_where_the_driver_does_and_only_reads():
    spec = body()["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "volume"}
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "data", "mountPath": "/data", "readOnly": True}
    ]


def test_the_claim_that_the_operator_made_is_found():
    (volume,) = body(storage={"size": "1Gi"})["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == "math-0a1b2c3d"


def test_it_ends_by_itself_and_with_the_job():
    pod = body()
    assert pod["spec"]["activeDeadlineSeconds"] == 300
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == UID


def test_the_operator_does_not_take_it_for_one_of_the_jobs():
    assert body()["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "kubectl-grpo"}


def test_two_of_them_do_not_collide():
    assert body()["metadata"]["name"] != body()["metadata"]["name"]


@pytest.mark.parametrize(
    ("given", "fields", "image"),
    [
        (None, {}, DEFAULT_IMAGE),
        (None, {"consumers": {"image": "trainer:1"}}, "trainer:1"),
        (None, {"consumers": {"image": "t:1"}, "head": {"image": "head:1"}}, "head:1"),
        ("mine:1", {"head": {"image": "head:1"}}, "mine:1"),
    ],
)
def test_its_image_is_the_one_asked_for_else_the_jobs(given, fields, image):
    assert body(given, **fields)["spec"]["containers"][0]["image"] == image


def test_it_goes_where_the_head_may_go():
    toleration = {"key": "gpu", "operator": "Exists"}
    spec = body(head={"nodeSelector": {"pool": "a"}, "tolerations": [toleration]})["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "a"}, [toleration])


def pod(**status):
    return {"metadata": {"name": "reader"}, "status": status}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running"}, ""),
        ({}, "Pending"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
                ],
            },
            "ErrImagePull: no such image",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]},
            "no node",
        ),
    ],
)
def test_the_reason_why_it_does_not_run_is_reported(status, why):
    assert why_waiting(pod(**status)) == why


def test_one_that_ended_is_an_error():
    with pytest.raises(CommandError, match="reader ended: Evicted"):
        why_waiting(pod(phase="Failed", reason="Evicted"))


def test_container_volume_and_run_directory_are_those_of_the_operators_pods():
    container = pod_template(job(), Role.HEAD, Settings())["spec"]["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert container["name"] == RAY_CONTAINER
    assert mounts["data"] == VOLUME
    assert directory(job()) == f"{environment['GRPO_RUN_DIR']}/checkpoints"
