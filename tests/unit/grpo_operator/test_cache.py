"""The cache of what the watches reported.

Aspects: the newest version counts, which changes cause a reconciliation, jobs of the same
name, nothing is kept of deleted objects.
"""

from typing import Any

import pytest

from grpo_operator.controller.cache import Cache
from grpo_operator.model.naming import job_labels
from grpo_operator.model.resources import CLUSTERS, JOBS, PODS
from support.observations import UID, job

KEY = ("lab", "math")


def raw_job(version: int = 1, seed: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "grpo-operator.io/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {
            "namespace": "lab",
            "name": "math",
            "uid": UID,
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"storage": {"claimName": "volume"}, "seed": seed},
    }


def child(name: str, version: int = 1, uid: str = UID) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "lab",
            "name": name,
            "uid": f"{name}-uid",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {**job_labels("math", uid), "ray.io/group": "producers"},
        },
        "spec": {},
    }


@pytest.fixture
def cache():
    return Cache()


def test_a_job_that_another_controller_manages_is_not_there_but_not_missed(cache):
    other = raw_job(version=3)
    other["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert cache.put(JOBS, other) is None
    assert cache.job(KEY) is None
    assert cache.keys() == ()
    assert cache.version(JOBS, KEY) == 3


def test_a_job_that_names_the_operator_is_its_own(cache):
    own = raw_job()
    own["spec"]["managedBy"] = "grpo-operator.io/grpo-operator"
    assert cache.put(JOBS, own) == KEY
    assert cache.job(KEY).spec is not None


def test_a_job_that_was_replaced_by_one_of_another_controller_is_forgotten(cache):
    cache.put(JOBS, raw_job(version=1))
    other = raw_job(version=2)
    other["spec"]["managedBy"] = "example.com/other"
    assert cache.put(JOBS, other) == KEY
    assert cache.job(KEY) is None


def test_everything_belongs_to_its_job(cache):
    assert cache.put(JOBS, raw_job()) == KEY
    assert cache.put(CLUSTERS, child("c")) == KEY
    assert cache.put(PODS, child("p")) == KEY
    assert cache.cluster(job()).name == "c"
    assert [pod.name for pod in cache.pods(job())] == ["p"]


def test_an_older_version_is_ignored(cache):
    cache.put(JOBS, raw_job(version=9, seed=9))
    cache.put(JOBS, raw_job(version=8, seed=8))
    assert cache.job(KEY).spec.seed == 9


def test_a_change_that_no_decision_depends_on_causes_no_reconciliation(cache):
    cache.put(PODS, child("p", version=1))
    assert cache.put(PODS, child("p", version=2)) is None
    assert cache.version(PODS, ("lab", "p")) == 2
    changed = child("p", version=3)
    changed["spec"]["nodeName"] = "a"
    assert cache.put(PODS, changed) == KEY


def test_children_of_an_earlier_job_of_the_same_name_are_ignored(cache):
    cache.put(CLUSTERS, child("old", uid="ffffffff-0"))
    cache.put(PODS, child("old", uid="ffffffff-0"))
    assert cache.cluster(job()) is None
    assert cache.pods(job()) == ()


def test_objects_of_no_job_are_ignored(cache):
    stray = child("stray")
    stray["metadata"]["labels"] = {}
    assert cache.put(PODS, stray) is None
    assert cache.names(PODS) == ()


def test_nothing_is_kept_of_deleted_objects(cache):
    for resource, raw in ((JOBS, raw_job()), (CLUSTERS, child("c")), (PODS, child("p"))):
        cache.put(resource, raw)
        assert cache.drop(resource, ("lab", raw["metadata"]["name"])) == KEY
    assert cache.job(KEY) is None
    assert cache.keys() == ()
    assert not any(vars(cache)["_by_job"])
    assert all(cache.names(resource) == () for resource in (JOBS, CLUSTERS, PODS))


def test_dropping_twice_is_harmless(cache):
    cache.put(PODS, child("p"))
    cache.drop(PODS, ("lab", "p"))
    assert cache.drop(PODS, ("lab", "p")) is None
