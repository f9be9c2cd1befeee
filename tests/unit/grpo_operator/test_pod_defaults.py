"""What a pod gets beside its job's spec.

Aspects: resources that Ray and Kubernetes agree on, heads that are not the first to be evicted,
proxies, the chart's defaults.
"""

import json

import pytest

from grpo_operator.defaults import JobDefaults
from grpo_operator.model.observed import Role
from grpo_operator.render import ray_cluster
from grpo_operator.render.pods import pod_template
from grpo_operator.settings import Settings
from support.observations import job


def container(role=Role.CONSUMER, defaults=None, **fields):
    settings = Settings(defaults=defaults or JobDefaults())
    (found,) = pod_template(job(**fields), role, settings)["spec"]["containers"]
    return found


def resources(role=Role.CONSUMER, **fields):
    return container(role, **fields).get("resources", {})


def variables(role=Role.CONSUMER, defaults=None, **fields):
    env = container(role, defaults, **fields)["env"]
    return {variable["name"]: variable.get("value") for variable in env}


def cpu(**given):
    return {"consumers": {"accelerator": "cpu", "resources": given}}


def test_memory_that_is_requested_is_a_limit_too():
    """KubeRay gives Ray the memory of the limit, or all of the node's."""
    found = resources(**cpu(requests={"cpu": "2", "memory": "4Gi"}))
    assert found["requests"] == {"cpu": "2", "memory": "4Gi"}
    assert found["limits"] == {"memory": "4Gi"}


def test_a_limit_that_is_given_is_kept():
    found = resources(**cpu(requests={"memory": "4Gi"}, limits={"memory": "8Gi"}))
    assert found["limits"] == {"memory": "8Gi"}


def test_an_extended_resource_that_is_requested_is_a_limit_too():
    requested = {"resources": {"requests": {"rdma/hca": "1"}}}
    patch = {"spec": {"containers": [{"name": "ray", **requested}]}}
    found = resources(consumers={"accelerator": "cpu", "podTemplate": patch})
    assert found["limits"] == {"rdma/hca": "1"}


def test_requests_of_a_pod_template_become_limits_too():
    patch = {
        "spec": {"containers": [{"name": "ray", "resources": {"requests": {"memory": "1Gi"}}}]}
    }
    found = resources(consumers={"accelerator": "cpu", "podTemplate": patch})
    assert found["limits"] == {"memory": "1Gi"}


def test_a_head_is_never_best_effort():
    assert resources(Role.HEAD)["requests"] == {"cpu": "500m", "memory": "1Gi"}
    mine = {"head": {"resources": {"limits": {"memory": "2Gi"}}}}
    assert resources(Role.HEAD, **mine) == {"limits": {"memory": "2Gi"}}


def test_without_a_proxy_nothing_is_said_about_proxies():
    assert not {"NO_PROXY", "no_proxy"} & variables(env=[{"name": "A", "value": "b"}]).keys()


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY", "grpc_proxy"])
def test_a_proxy_is_never_used_inside_the_cluster(name):
    given = [
        {"name": name, "value": "http://proxy:3128"},
        {"name": "NO_PROXY", "value": "corp, .x"},
    ]
    for role in Role:
        found = variables(role, env=given)
        assert found[name] == "http://proxy:3128"
        entries = found["no_proxy"].split(",")
        assert entries == found["NO_PROXY"].split(",")
        assert entries[:2] == ["corp", ".x"]
        assert {"localhost", "127.0.0.1", ".svc", ".cluster.local"} <= set(entries)


DEFAULTS = JobDefaults.parse(
    "GRPO_JOB_DEFAULTS",
    json.dumps(
        {
            "env": [
                {"name": "HF_ENDPOINT", "value": "http://hub"},
                {"name": "A", "value": "chart"},
            ],
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "runtimeClassName": "nvidia",
            "labels": {"cost-center": "rl", "grpo-operator.io/job-uid": "forged"},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        }
    ),
)


def test_the_charts_defaults_are_in_every_pod_and_the_spec_overrides_them():
    fields = {
        "env": [{"name": "A", "value": "mine"}],
        "imagePullSecrets": [{"name": "registry"}, {"name": "own"}],
        "consumers": {"tolerations": [{"key": "spot", "operator": "Exists"}]},
    }
    found = variables(defaults=DEFAULTS, **fields)
    assert (found["HF_ENDPOINT"], found["A"]) == ("http://hub", "mine")
    pod = pod_template(job(**fields), Role.CONSUMER, Settings(defaults=DEFAULTS))
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "own"}]
    assert [t["key"] for t in pod["spec"]["tolerations"]] == ["gpu", "spot"]
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_the_charts_labels_are_on_cluster_and_pods_and_cannot_replace_ours():
    cluster = ray_cluster(job(), Settings(defaults=DEFAULTS))
    pod = cluster["spec"]["headGroupSpec"]["template"]
    for metadata in (cluster["metadata"], pod["metadata"]):
        assert metadata["labels"]["cost-center"] == "rl"
        assert metadata["labels"]["grpo-operator.io/job-uid"] == job().uid
        assert metadata["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_invalid_defaults_name_the_variable_and_the_field():
    with pytest.raises(ValueError, match=r"GRPO_JOB_DEFAULTS: Invalid value: .*tolerationz"):
        JobDefaults.parse("GRPO_JOB_DEFAULTS", '{"tolerationz": []}')


def test_the_chart_sets_pull_policy_scheduler_and_priority():
    defaults = JobDefaults(
        image_pull_policy="Always", scheduler_name="volcano", priority_class_name="batch"
    )
    assert container(defaults=defaults)["imagePullPolicy"] == "Always"
    for fields, priority in (({}, "batch"), ({"priorityClassName": "urgent"}, "urgent")):
        pod = pod_template(job(**fields), Role.PRODUCER, Settings(defaults=defaults))["spec"]
        assert (pod["schedulerName"], pod["priorityClassName"]) == ("volcano", priority)


def test_a_security_context_of_the_chart_replaces_the_fixed_user():
    """OpenShift assigns user and group itself, and refuses fixed ones."""
    given = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    defaults = JobDefaults(pod_security_context=given)
    for role in Role:
        pod = pod_template(job(), role, Settings(defaults=defaults))["spec"]
        assert pod["securityContext"] == given
    assert pod_template(job(), Role.HEAD, Settings())["spec"]["securityContext"]["fsGroup"] == 1000
