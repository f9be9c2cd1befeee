"""What the watches told.

Aspects: newest wins, what is worth a look, namesakes apart, nothing kept of what is gone.
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
def store():
    return Cache()


def test_everything_belongs_to_its_job(store):
    assert store.put(JOBS, raw_job()) == KEY
    assert store.put(CLUSTERS, child("c")) == KEY
    assert store.put(PODS, child("p")) == KEY
    assert store.cluster(job()).name == "c"
    assert [pod.name for pod in store.pods(job())] == ["p"]


def test_news_that_is_older_than_what_is_known_is_passed_over(store):
    store.put(JOBS, raw_job(version=9, seed=9))
    store.put(JOBS, raw_job(version=8, seed=8))
    assert store.job(KEY).spec.seed == 9


def test_news_that_no_decision_depends_on_is_no_reason_to_look(store):
    store.put(PODS, child("p", version=1))
    assert store.put(PODS, child("p", version=2)) is None
    assert store.version(PODS, ("lab", "p")) == 2
    changed = child("p", version=3)
    changed["spec"]["nodeName"] = "a"
    assert store.put(PODS, changed) == KEY


def test_children_of_a_namesake_are_not_the_jobs(store):
    store.put(CLUSTERS, child("old", uid="ffffffff-0"))
    store.put(PODS, child("old", uid="ffffffff-0"))
    assert store.cluster(job()) is None
    assert store.pods(job()) == ()


def test_objects_of_nobody_are_passed_over(store):
    stray = child("stray")
    stray["metadata"]["labels"] = {}
    assert store.put(PODS, stray) is None
    assert store.names(PODS) == ()


def test_what_is_dropped_leaves_nothing_behind(store):
    for resource, raw in ((JOBS, raw_job()), (CLUSTERS, child("c")), (PODS, child("p"))):
        store.put(resource, raw)
        assert store.drop(resource, ("lab", raw["metadata"]["name"])) == KEY
    assert store.job(KEY) is None
    assert store.keys() == ()
    assert not any(vars(store)["_by_job"])
    assert all(store.names(resource) == () for resource in (JOBS, CLUSTERS, PODS))


def test_dropping_twice_is_harmless(store):
    store.put(PODS, child("p"))
    store.drop(PODS, ("lab", "p"))
    assert store.drop(PODS, ("lab", "p")) is None
