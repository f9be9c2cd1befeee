"""What the operator creates, as plain data.

Aspects: the whole of a plain and of a rich job, against committed snapshots; names within limits;
nothing of the user's reaches a shell; ownership; labels; Kueue; pools; scaling patches.

`UPDATE_SNAPSHOTS=1 pytest` rewrites the snapshots.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from grpo_operator.model.naming import attempt_of, child_name, job_labels, submission_id
from grpo_operator.model.parsing import parse_job
from grpo_operator.render import claim, config_map, ray_cluster, scale_patch, secret
from grpo_operator.settings import Images, Settings
from grpo_trainer.spec import MAX_NAME_LENGTH, parse_manifest
from support.observations import UID, job

SNAPSHOTS = Path(__file__).with_name("snapshots")
SETTINGS = Settings(images=Images("trainer:1", "vllm:1", "2.60.0"))
RICH = {
    "storage": {"size": "100Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]},
    "head": {"resources": {"requests": {"cpu": "2", "memory": "8Gi"}}},
    "producers": {
        "replicas": 3,
        "backend": "vllm",
        "tensorParallelSize": 2,
        "nodeSelector": {"gpu": "l40s"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "podTemplate": {
            "metadata": {"annotations": {"team": "rl"}},
            "spec": {
                "containers": [{"name": "ray", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}]
            },
        },
    },
    "consumers": {
        "image": "mine:2",
        "replicas": 2,
        "processesPerReplica": 4,
        "resources": {"limits": {"memory": "64Gi"}},
    },
    "tracking": {"wandb": {"secretName": "wandb"}},
    "queueName": "gpus",
    "priorityClassName": "research",
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "trainer",
    "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
    "envFrom": [{"configMapRef": {"name": "proxy"}}],
}
JOBS = {
    "plain": {"consumers": {"accelerator": "cpu"}, "producers": {"accelerator": "cpu"}},
    "rich": RICH,
}


def everything(subject):
    found = [claim(subject), config_map(subject), secret(subject, "TOKEN")]
    return [o for o in [*found, ray_cluster(subject, SETTINGS)] if o is not None]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_renders_as_in_its_snapshot(name):
    objects = everything(job(**JOBS[name]))
    (config,) = (item for item in objects if item["kind"] == "ConfigMap")
    digest = config["metadata"]["name"].rpartition("-")[2]
    config["data"] |= {name: "(not shown)" for name in config["data"] if name != "spec.json"}
    text = yaml.safe_dump_all(objects, sort_keys=False, width=100).replace(digest, "digest")
    path = SNAPSHOTS / f"{name}.yaml"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all(path.read_text()))


def templates(cluster):
    groups = cluster["spec"]["workerGroupSpecs"]
    return [cluster["spec"]["headGroupSpec"]["template"], *(g["template"] for g in groups)]


def containers(cluster):
    return [c for t in templates(cluster) for c in t["spec"]["containers"]]


names = st.from_regex(rf"[a-z]([-a-z0-9]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?", fullmatch=True)


@given(names, st.uuids())
def test_every_name_and_label_fits(name, uid):
    subject = replace(job(), name=name, uid=str(uid))
    for item in everything(subject):
        limit = 53 if item["kind"] == "RayCluster" else 253
        assert len(item["metadata"]["name"]) <= limit
        pod_labels = (
            [t["metadata"]["labels"] for t in templates(item)]
            if "spec" in item and (item["kind"] == "RayCluster")
            else []
        )
        for labels in [item["metadata"]["labels"], *pod_labels]:
            assert all(len(value) <= 63 for value in labels.values())


@given(st.uuids(), st.integers(1, 10**6))
def test_attempts_are_known_by_their_submission(uid, attempt):
    assert attempt_of(str(uid), submission_id(str(uid), attempt)) == attempt
    assert attempt_of(UID, "raysubmit_abc") is None


def test_namesakes_do_not_share_children():
    assert child_name("math", "11111111-a") != child_name("math", "22222222-a")


@pytest.mark.parametrize("text", ["a b", "it's", "$(reboot)", "`x`", 'say "hi"', "two\nlines"])
def test_nothing_of_the_users_reaches_a_command_line(text):
    subject = job(model={"path": text}, env=[{"name": "X", "value": text}])
    cluster = ray_cluster(subject, SETTINGS)
    for container in containers(cluster):
        assert "command" not in container
        assert "args" not in container
        assert {"name": "X", "value": text} in container["env"]
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    assert text not in json.dumps([group["rayStartParams"] for group in groups])


@pytest.mark.parametrize("fields", JOBS.values(), ids=JOBS)
def test_the_trainer_reads_the_spec_it_was_given(fields):
    subject = job(**fields)
    manifest = json.loads(config_map(subject)["data"]["spec.json"])
    assert parse_manifest(manifest).spec == subject.spec
    assert parse_manifest(manifest).metadata.name == "math"


@pytest.mark.parametrize("fields", JOBS.values(), ids=JOBS)
def test_the_trainer_gets_every_default_of_this_version(fields):
    subject = job(**fields)
    resolved = json.loads(config_map(subject)["data"]["resolved.json"])
    assert parse_manifest(resolved).spec.plain() == resolved["spec"]
    assert resolved["spec"]["sampling"]["maxNewTokens"] == 3584
    assert resolved["spec"]["algorithm"]["clipHigh"] == 0.2


def test_children_are_owned_and_a_claim_only_if_it_is_to_go_with_the_job():
    owner = [{"kind": "GRPOJob", "uid": UID, "name": "math"}]
    for item in everything(job(storage={"size": "1Gi", "retention": "Delete"})):
        (reference,) = item["metadata"]["ownerReferences"]
        assert owner[0].items() <= reference.items()
    kept = claim(job(storage={"size": "1Gi"}))
    assert "ownerReferences" not in kept["metadata"]


def test_no_claim_is_created_when_the_job_brings_its_own():
    assert claim(job(storage={"claimName": "mine"})) is None
    (volume,) = [
        v
        for v in templates(ray_cluster(job(storage={"claimName": "mine"}), SETTINGS))[0]["spec"][
            "volumes"
        ]
        if v["name"] == "data"
    ]
    assert volume["persistentVolumeClaim"]["claimName"] == "mine"


def test_the_queue_stands_on_the_cluster_alone():
    cluster = ray_cluster(job(queueName="gpus"), SETTINGS)
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert all("kueue" not in json.dumps(t["metadata"]) for t in templates(cluster))


def test_labels_of_the_job_itself_are_not_passed_on():
    raw = {
        "apiVersion": "grpo-operator.io/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {
            "namespace": "lab",
            "name": "math",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kueue.x-k8s.io/queue-name": "gpus", "team": "red"},
        },
        "spec": {"storage": {"size": "1Gi"}},
    }
    for item in everything(parse_job(raw)):
        assert "kueue" not in json.dumps(item)
        assert "team" not in item["metadata"]["labels"]


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {"grpo-operator.io/job-uid": "x", "team": "red"}}, {"labels": None}, None],
)
def test_a_pod_template_cannot_take_the_labels_by_which_pods_are_found(metadata):
    subject = job(producers={"podTemplate": {"metadata": metadata}})
    producers = templates(ray_cluster(subject, SETTINGS))[1]
    assert job_labels("math", UID).items() <= producers["metadata"]["labels"].items()


def test_accelerators_are_counted_by_process_and_by_tensor_parallel_rank():
    cluster = ray_cluster(job(**RICH), SETTINGS)
    head, producer, consumer = (t["spec"]["containers"][0] for t in templates(cluster))
    assert "nvidia.com/gpu" not in json.dumps(head["resources"])
    assert producer["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert consumer["resources"]["limits"]["nvidia.com/gpu"] == "4"
    groups = {g["groupName"]: g for g in cluster["spec"]["workerGroupSpecs"]}
    assert groups["producers"]["resources"] == {"grpo_producer": "1"}
    assert groups["consumers"]["resources"] == {"grpo_consumer": "4"}
    for group in groups.values():
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_images_follow_role_and_backend():
    def images(**fields):
        return [c["image"] for c in containers(ray_cluster(job(**fields), SETTINGS))]

    assert images() == ["trainer:1"] * 3
    assert images(producers={"backend": "vllm"}) == ["trainer:1", "vllm:1", "trainer:1"]
    assert images(consumers={"backend": "fsdp"}) == ["vllm:1"] * 3
    assert images(consumers={"image": "own"})[2] == "own"


def test_a_user_cannot_turn_authentication_off_by_a_variable():
    cluster = ray_cluster(job(env=[{"name": "RAY_AUTH_MODE", "value": "disabled"}]), SETTINGS)
    for container in containers(cluster):
        values = [v["value"] for v in container["env"] if v["name"] == "RAY_AUTH_MODE"]
        assert values == ["token"]


def test_scaling_touches_the_replicas_of_the_producers_alone():
    cluster = ray_cluster(job(**RICH), SETTINGS)
    patch = scale_patch(cluster, 7)
    assert patch[0] == {
        "op": "test",
        "path": "/spec/workerGroupSpecs/0/groupName",
        "value": "producers",
    }
    assert {p["path"].rsplit("/", 1)[1]: p["value"] for p in patch[1:]} == {
        "replicas": 7,
        "minReplicas": 7,
        "maxReplicas": 7,
    }
