"""Labels and annotations that a job and the chart give to a RayCluster and its pods.

Aspects: precedence; schedulers; Kueue; reserved keys; what an administrator allows.
"""

import pytest

from grpo_operator.defaults import JobDefaults
from grpo_operator.model.naming import QUEUE_LABEL
from grpo_operator.render import ray_cluster
from grpo_operator.render.metadata import KeyNotAllowedError
from grpo_operator.settings import Settings
from grpo_trainer.spec import InvalidManifestError, parse_manifest
from support.observations import job

PRIORITY = "kueue.x-k8s.io/priority-class"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def rendered(defaults: JobDefaults | None = None, **fields) -> tuple[dict, list[dict]]:
    """The metadata of the RayCluster, and of all pods."""
    settings = Settings(defaults=defaults or JobDefaults())
    cluster = ray_cluster(job(**fields), settings)
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    return cluster["metadata"], [group["template"]["metadata"] for group in groups]


def labelled(labels: dict[str, str], field: str = "labels") -> dict:
    return {
        "apiVersion": "grpo-operator.io/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": "math"},
        "spec": {field: labels},
    }


def test_a_jobs_labels_and_annotations_are_on_the_cluster_and_all_pods():
    given = {"team": "rl", "volcano.sh/queue-name": "research", "kai.scheduler/queue": "research"}
    kept = {SAFE: "false", "karpenter.sh/do-not-disrupt": "true"}
    cluster, pods = rendered(labels=given, annotations=kept)
    for metadata in (cluster, *pods):
        assert given.items() <= metadata["labels"].items()
        assert metadata["annotations"] == kept


def test_the_spec_overrides_the_chart_and_a_pod_template_overrides_both():
    defaults = JobDefaults(labels={"team": "none", "center": "1"}, annotations={"a": "chart"})
    template = {"metadata": {"labels": {"team": "pool"}}}
    cluster, (head, producers, consumers) = rendered(
        defaults,
        labels={"team": "rl"},
        annotations={"a": "mine"},
        consumers={"podTemplate": template},
    )
    teams = [metadata["labels"]["team"] for metadata in (cluster, head, producers, consumers)]
    assert teams == ["rl", "rl", "rl", "pool"]
    assert head["labels"]["center"] == "1"
    assert head["annotations"] == {"a": "mine"}


def test_labels_of_kueue_are_on_the_cluster_alone():
    defaults = JobDefaults(labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"})
    cluster, pods = rendered(defaults, queueName="gpus", labels={PRIORITY: "high"})
    assert cluster["labels"][QUEUE_LABEL] == "gpus"
    assert cluster["labels"][PRIORITY] == "high"
    assert not any(key.startswith("kueue.") for pod in pods for key in pod["labels"])


@pytest.mark.parametrize(("own", "queue"), [({}, "default"), ({"queueName": "gpus"}, "gpus")])
def test_the_charts_queue_is_that_of_jobs_that_name_none(own, queue):
    cluster, _ = rendered(JobDefaults(queue_name="default"), **own)
    assert cluster["labels"][QUEUE_LABEL] == queue


@pytest.mark.parametrize(
    "key",
    [
        "ray.io/cluster",
        "grpo-operator.io/job-uid",
        "app.kubernetes.io/name",
        "kueue.x-k8s.io/queue-name",
        "pod-security.kubernetes.io/enforce",
    ],
)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_keys_with_effects_of_their_own_are_refused(key, field):
    with pytest.raises(InvalidManifestError, match=rf"spec\.{field}: Forbidden: keys of .*ray\.io"):
        parse_manifest(labelled({key: "x"}, field))


@pytest.mark.parametrize(
    ("field", "labels", "words"),
    [
        ("labels", {"a b": "x"}, "label key"),
        ("labels", {"a": "x y"}, "label value"),
        ("annotations", {"-": "x"}, "label key"),
    ],
)
def test_keys_and_values_follow_the_grammar_of_kubernetes(field, labels, words):
    with pytest.raises(InvalidManifestError, match=words):
        parse_manifest(labelled(labels, field))


def test_an_annotation_may_have_any_text():
    spec = parse_manifest(labelled({"note": "any text: {}"}, "annotations")).spec
    assert spec.annotations == {"note": "any text: {}"}


def test_an_administrator_can_allow_a_list_of_keys():
    defaults = JobDefaults(allowed_keys=("team", "cost.example.com/*"))
    cluster, _ = rendered(defaults, labels={"team": "rl", "cost.example.com/center": "7"})
    assert cluster["labels"]["cost.example.com/center"] == "7"
    for field in ("labels", "annotations"):
        with pytest.raises(KeyNotAllowedError, match=rf"spec\.{field}: Invalid value: 'teams'"):
            rendered(defaults, **{field: {"teams": "rl"}})


def test_the_administrators_own_labels_need_no_permission():
    defaults = JobDefaults(allowed_keys=("team",), labels={"center": "7"})
    assert rendered(defaults)[0]["labels"]["center"] == "7"
