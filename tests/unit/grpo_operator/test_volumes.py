"""Volumes: the pods of a claim that one node can mount meet on it, and Events say why a volume does
not attach or mount.

Aspects: which access modes; claims that exist; other jobs of the same claim; which Event is the
cause; how often it is read.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.causes import Causes, cause_of
from grpo_operator.controller.decide import decide
from grpo_operator.model.naming import CLAIM_LABEL, claim_label
from grpo_operator.model.observed import Problem, Role
from grpo_operator.model.resources import CLAIMS, CLUSTERS, EVENTS, JOBS
from grpo_operator.policies.volumes import Subject
from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from support.observations import NOW, at, job, observed, pods, starting, state_of
from support.reconciliation import KEY, raw_job

HEAD = Subject("Pod", f"{Role.HEAD}-0")
CLAIM = Subject("PersistentVolumeClaim", "math-0a1b2c3d")
UNBOUND = Problem("Unschedulable", "pod has unbound immediate PersistentVolumeClaims")
ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other'
MOUNT = "Unable to attach or mount volumes: timed out waiting for the condition"


def templates(cluster):
    spec = cluster["spec"]
    return [spec["headGroupSpec"]["template"], *(g["template"] for g in spec["workerGroupSpecs"])]


async def created(api, reconciler, storage, *, modes=None):
    """The RayCluster that is created for a job with this storage."""
    bodies = []
    create = api.create

    async def keep(resource, namespace, body):
        bodies.append((resource, body))
        return await create(resource, namespace, body)

    api.create = keep
    if modes is not None:
        api.objects[CLAIMS, "shared"] = {"spec": {"accessModes": modes}}
    api.put(JOBS, raw_job() | {"spec": {"storage": storage}})
    await reconciler.reconcile(KEY, 0.0)
    return next(body for resource, body in bodies if resource is CLUSTERS)


@pytest.mark.parametrize(
    ("storage", "modes", "claim"),
    [
        ({"size": "1Gi"}, None, "math-0a1b2c3d"),
        ({"size": "1Gi", "accessModes": ["ReadWriteMany"]}, None, None),
        ({"size": "1Gi", "accessModes": ["ReadWriteOnce", "ReadWriteMany"]}, None, None),
        ({"claimName": "shared"}, ["ReadWriteOnce"], "shared"),
        ({"claimName": "shared"}, ["ReadWriteOncePod"], "shared"),
        ({"claimName": "shared"}, ["ReadWriteMany"], None),
        ({"claimName": "missing"}, None, None),
    ],
)
async def test_pods_meet_where_one_node_at_a_time_can_mount_their_claim(
    api, reconciler, storage, modes, claim
):
    for template in templates(await created(api, reconciler, storage, modes=modes)):
        affinity = template["spec"].get("affinity")
        if claim is None:
            assert affinity is None
            assert CLAIM_LABEL not in template["metadata"]["labels"]
            continue
        (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == {CLAIM_LABEL: claim}
        assert template["metadata"]["labels"][CLAIM_LABEL] == claim


@pytest.mark.parametrize("removed", [None, {"$patch": "delete"}])
def test_a_pod_template_may_remove_the_affinity(removed):
    subject = job(storage={"size": "1Gi"}, head={"podTemplate": {"spec": {"affinity": removed}}})
    head, *others = templates(ray_cluster(subject, Settings(), "volume"))
    assert not head["spec"].get("affinity")
    assert all(other["spec"]["affinity"] for other in others)


def test_claims_with_long_names_keep_different_labels():
    labels = {claim_label(f"{'a' * 200}-{number}") for number in range(3)}
    assert len(labels) == 3
    assert all(len(label) <= 63 for label in labels)


def event(reason, seconds, message=""):
    time = at(seconds).isoformat().replace("+00:00", "Z")
    return {"reason": reason, "message": message, "lastTimestamp": time, "metadata": {}}


def test_the_failure_to_attach_is_the_cause_of_the_failure_to_mount():
    events = [event("FailedMount", 60, MOUNT), event("FailedAttachVolume", 0, ATTACH)]
    assert cause_of(HEAD, events) == Problem("FailedAttachVolume", f"pod head-0: {ATTACH}")


def test_a_failure_that_was_resolved_is_no_cause():
    attached = [event("FailedAttachVolume", 0, ATTACH), event("SuccessfulAttachVolume", 10)]
    assert cause_of(HEAD, attached) is None
    failed = cause_of(HEAD, [*attached, event("FailedMount", 20, MOUNT)])
    assert failed == Problem("FailedMount", f"pod head-0: {MOUNT}")
    assert cause_of(HEAD, []) is None


class Reader:
    """Answers with Events, and counts."""

    def __init__(self, *events):
        self.events, self.asked = list(events), []

    async def list(self, resource, namespace, *, field_selector, limit):
        assert resource is EVENTS
        self.asked.append(field_selector)
        return {"items": self.events}


def pending(**fields):
    """A job whose head has waited for a minute."""
    values = {"ready": False, "created": at(-60), **fields}
    return observed(job(starting(), storage={"size": "1Gi"}), pods=pods(**values))


async def test_a_volume_that_does_not_attach_is_named_in_the_status():
    seen = pending(creating=True)
    cause = await Causes(Reader(event("FailedAttachVolume", 0, ATTACH))).of(seen, NOW)
    decision = decide(replace(seen, cause=cause), NOW)
    assert state_of(decision, "ClusterReady") == ("False", "FailedAttachVolume")
    assert f"pod head-0: {ATTACH}" in decision.message


async def test_a_claim_that_is_not_provisioned_is_named_with_its_class_and_the_cause():
    missing = 'storageclass.storage.k8s.io "fast" not found'
    seen = pending(problem=UNBOUND, created=at(-20))
    reader = Reader(event("ProvisioningFailed", 0, missing))
    cause = await Causes(reader).of(seen, NOW)
    assert reader.asked == [
        "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=math-0a1b2c3d"
    ]
    decision = decide(replace(seen, cause=cause), NOW)
    assert state_of(decision, "ClusterReady") == ("False", "ProvisioningFailed")
    assert decision.message == (
        f"claim math-0a1b2c3d: {missing} (storage class of the cluster (default))"
    )


async def test_events_are_read_for_pods_that_wait_long_only_and_not_at_every_reconciliation():
    reader = Reader()
    causes = Causes(reader)
    assert await causes.of(pending(creating=True, created=at(-29)), NOW) is None
    assert await causes.of(pending(problem=Problem("Unschedulable", "no GPU")), NOW) is None
    assert await causes.of(pending(ready=True), NOW) is None
    assert reader.asked == []
    for seconds in range(15):
        await causes.of(pending(creating=True), at(seconds))
    assert len(reader.asked) == 1
    await causes.of(pending(creating=True), at(15))
    assert len(reader.asked) == 2


def test_a_pod_that_waits_for_its_volume_is_observed_again():
    assert decide(pending(creating=True), NOW).requeue_after == 15.0
