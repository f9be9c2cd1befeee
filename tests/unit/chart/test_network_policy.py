"""The NetworkPolicy of a job, and the variable with its peers.

Aspects: the pods that it selects; the ports of each peer; empty lists; valid and invalid values of
the variable.
"""

import json

import kubernetes_validate
import pytest

from grpo_operator.access import NetworkAccess
from grpo_operator.render.cluster import ray_cluster
from grpo_operator.render.network import network_policy
from grpo_operator.settings import Settings
from support.observations import UID, job

OPERATOR = {"podSelector": {"matchLabels": {"app": "operator"}}}
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
ACCESS = NetworkAccess((OPERATOR,), (PROMETHEUS,))


def ports_by_peer(policy):
    """Ports that each peer reaches; None is all of them."""
    return {
        json.dumps(peer): [port["port"] for port in rule["ports"]] if "ports" in rule else None
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
    }


def test_it_covers_every_pod_of_its_job_and_no_other():
    policy = network_policy(job(), ACCESS)
    covered = policy["spec"]["podSelector"]["matchLabels"].items()
    cluster = ray_cluster(job(), Settings())
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    assert all(covered <= g["template"]["metadata"]["labels"].items() for g in groups)
    assert covered == {"grpo-operator.io/job-uid": UID}.items()


def test_each_peer_reaches_what_it_needs():
    policy = network_policy(job(), ACCESS)
    own = {"podSelector": {"matchLabels": {"grpo-operator.io/job-uid": UID}}}
    assert ports_by_peer(policy) == {
        json.dumps(own): None,
        json.dumps(OPERATOR): [8265, 9464],
        json.dumps(PROMETHEUS): [9464, 8080],
    }


def test_a_list_without_peers_allows_no_connection():
    policy = network_policy(job(), NetworkAccess((), ()))
    assert [rule["from"] for rule in policy["spec"]["ingress"]] == [
        [{"podSelector": policy["spec"]["podSelector"]}]
    ]


def test_it_leaves_what_goes_out_alone():
    assert network_policy(job(), ACCESS)["spec"]["policyTypes"] == ["Ingress"]


def test_it_goes_with_its_job():
    policy = network_policy(job(), ACCESS)
    (owner,) = policy["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("GRPOJob", UID)


def test_it_is_valid_for_its_kind():
    kubernetes_validate.validate(network_policy(job(), ACCESS), "1.34", strict=True)


def test_the_variable_names_the_peers():
    text = json.dumps({"operator": [OPERATOR], "monitoring": [PROMETHEUS]})
    assert NetworkAccess.parse("X", text) == ACCESS


def test_without_the_variable_there_is_no_policy():
    assert NetworkAccess.parse("X", "") is None


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "[]",
        '{"operator": []}',
        '{"operator": [], "monitoring": [], "others": []}',
        '{"operator": {}, "monitoring": []}',
        '{"operator": [{}], "monitoring": []}',
        '{"operator": [], "monitoring": [{"pods": {}}]}',
        '{"operator": ["all"], "monitoring": []}',
    ],
)
def test_an_error_names_the_variable_its_value_and_what_it_must_be(text):
    with pytest.raises(ValueError, match="Invalid value") as error:
        NetworkAccess.parse("GRPO_NETWORK_POLICY", text)
    assert str(error.value).startswith(f"GRPO_NETWORK_POLICY: Invalid value: {text!r}")
    assert '{"operator": [PEER, ...], "monitoring": [PEER, ...]}' in str(error.value)
