"""The pods of an environment: no token, no volume, no variables of the job, connections from the
job's pods alone; and where the head finds them."""

import json

import kubernetes_validate
import pytest

from grpo_operator.model.naming import JOB_LABEL, UID_LABEL
from grpo_operator.model.observed import Role
from grpo_operator.render import (
    environment_deployment,
    environment_policy,
    environment_service,
    has_environment_pods,
    network_policy,
)
from grpo_operator.render.environment_pods import ENVIRONMENT_LABEL
from grpo_operator.render.pods import pod_template
from grpo_operator.settings import Images, Settings
from support.observations import UID, job

SETTINGS = Settings(images=Images("trainer:1", "vllm:1", "2.60.0"))


def of(**environment):
    return job(
        reward={"type": "environment"},
        environment={"module": "tools:Calculator", **environment},
        env=[{"name": "HF_TOKEN", "value": "secret"}],
        storage={"size": "1Gi"},
    )


def pod(**environment):
    return environment_deployment(of(**environment), SETTINGS)["spec"]["template"]


def test_the_objects_fit_the_schemas_of_kubernetes():
    for made in (
        environment_deployment(of(pods={"replicas": 2}), SETTINGS),
        environment_service(of()),
        environment_policy(of()),
    ):
        kubernetes_validate.validate(made, "1.34", strict=True)
        assert made["metadata"]["ownerReferences"][0]["uid"] == UID
        assert len(made["metadata"]["name"]) <= 63


def test_a_pod_serves_the_module_with_the_image_and_resources_of_the_spec():
    pods = {"image": "tools:1", "resources": {"requests": {"cpu": "4"}}}
    [container] = pod(pods=pods)["spec"]["containers"]
    assert container["image"] == "tools:1"
    assert container["command"][:3] == ["grpo", "environment", "tools:Calculator"]
    assert container["resources"] == {"requests": {"cpu": "4"}}
    assert pod()["spec"]["containers"][0]["image"] == "trainer:1"


def test_a_pod_has_no_token_no_volume_and_no_variable_of_the_job():
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "volumes" not in spec and "serviceAccountName" not in spec
    [container] = spec["containers"]
    assert "env" not in container and "envFrom" not in container
    assert "secret" not in json.dumps(spec)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_a_template_of_the_user_is_merged_but_for_our_labels():
    patch = {"metadata": {"labels": {ENVIRONMENT_LABEL: "x", "team": "rl"}}}
    labels = pod(pods={"podTemplate": patch})["metadata"]["labels"]
    assert labels[ENVIRONMENT_LABEL] == UID
    assert labels["team"] == "rl"


def test_pods_of_the_environment_are_not_counted_as_pods_of_the_job():
    labels = pod()["metadata"]["labels"]
    assert UID_LABEL not in labels and JOB_LABEL not in labels


def test_only_pods_of_the_job_may_connect_and_nothing_but_names_is_reached_from_a_pod():
    policy = environment_policy(of())["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    [rule] = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {UID_LABEL: UID}}}]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53}


def test_the_service_has_an_address_for_each_pod():
    service = environment_service(of())["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= pod()["metadata"]["labels"].items()


def test_the_head_finds_the_environment_by_the_name_of_its_service():
    [container] = pod_template(of(), Role.HEAD, SETTINGS)["spec"]["containers"]
    [url] = [v["value"] for v in container["env"] if v["name"] == "GRPO_ENVIRONMENT_URL"]
    name, namespace = (environment_service(of())["metadata"][key] for key in ("name", "namespace"))
    assert url == f"http://{name}.{namespace}.svc:8000"


@pytest.mark.parametrize("environment", [None, {"url": "http://tools:8000"}])
def test_a_job_with_an_address_or_without_an_environment_has_no_pods_for_it(environment):
    given = {"environment": environment, "reward": {"type": "environment"}} if environment else {}
    made = job(**given)
    assert not has_environment_pods(made.spec)
    [container] = pod_template(made, Role.HEAD, SETTINGS)["spec"]["containers"]
    assert "GRPO_ENVIRONMENT_URL" not in {v["name"] for v in container["env"]}


def test_the_policy_of_the_job_does_not_open_the_environment():
    from grpo_operator.access import NetworkAccess

    own = network_policy(of(), NetworkAccess((), ()))["spec"]["podSelector"]["matchLabels"]
    assert not own.items() <= pod()["metadata"]["labels"].items()
