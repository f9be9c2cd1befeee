"""The operator's settings from its environment. Aspects: defaults, values, errors."""

import pytest

from grpo_operator.access import NetworkAccess
from grpo_operator.settings import Settings


def test_an_empty_environment_gives_the_defaults():
    settings = Settings.from_environment({})
    assert settings.namespaces == ()
    assert settings.leader_election
    assert settings.network_access is None
    assert settings.head_url("lab", "x-head-svc", 8265) == "http://x-head-svc.lab.svc:8265"


def test_values_are_read():
    settings = Settings.from_environment(
        {
            "GRPO_NAMESPACES": "a, b",
            "GRPO_TRAINER_IMAGE": "t:1",
            "GRPO_LEADER_ELECTION": "false",
            "GRPO_STATUS_SECONDS": "60",
            "GRPO_NETWORK_POLICY": '{"operator": [{"podSelector": {}}], "monitoring": []}',
            "GRPO_HEAD_URL_TEMPLATE": "http://127.0.0.1:1/{namespace}/{service}/{port}",
            "POD_NAME": "operator-0",
        }
    )
    assert settings.namespaces == ("a", "b")
    assert settings.images.trainer == "t:1"
    assert not settings.leader_election
    assert settings.head_url("n", "s", 5) == "http://127.0.0.1:1/n/s/5"
    assert settings.identity == "operator-0"
    assert settings.status_seconds == 60
    assert settings.network_access == NetworkAccess(({"podSelector": {}},), ())


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("GRPO_LEADER_ELECTION", "yes", "true, false"),
        ("GRPO_LISTEN_PORT", "http", "must be an integer"),
        ("GRPO_LISTEN_PORT", "65536", "at most 65535"),
        ("GRPO_CONCURRENCY", "0", "at least 1"),
        ("GRPO_STATUS_SECONDS", "-1", "at least 0"),
        ("GRPO_NETWORK_POLICY", '{"operator": []}', "NetworkPolicyPeers"),
        ("GRPO_LOG_FORMAT", "xml", "json, plain"),
        ("GRPO_HEAD_URL_TEMPLATE", "http://{host}", "{service}"),
        ("GRPO_HEAD_URL_TEMPLATE", "http://{service.host}", "{service}"),
        ("GRPO_HEAD_URL_TEMPLATE", "http://{service[host]}", "{service}"),
        ("GRPO_HEAD_URL_TEMPLATE", "{service}:{port}", "http(s) URL"),
        ("GRPO_NAMESPACES", "lab, Team_1", "must be names of namespaces"),
        ("GRPO_TRAINER_IMAGE", "", "must not be empty"),
        ("GRPO_LEASE_NAME", " ", "must not be empty"),
        ("POD_NAMESPACE", "", "must not be empty"),
    ],
)
def test_an_error_names_the_variable_its_value_and_what_it_must_be(name, value, must):
    with pytest.raises(ValueError, match="Invalid value") as error:
        Settings.from_environment({name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)
    assert must in str(error.value)
