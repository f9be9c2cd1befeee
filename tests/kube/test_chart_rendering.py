"""What the chart renders to, without a cluster.

Aspects: the linter; every object against the schema of its kind; each switch, as what it changes in
a committed snapshot; the operator's rights and environment; the definition; alerts and dashboards;
values that are refused.

`UPDATE_SNAPSHOTS=1 pytest` rewrites the snapshots.
"""

import difflib
import json
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from grpo_operator.access import NetworkAccess
from grpo_operator.render import ray_cluster
from grpo_operator.settings import DRIVER_PORT, Images, Settings
from kube.accounts import own_policy_rules, served_policy_rules
from support.helm_chart import (
    CHART,
    DEFINITION,
    KUBERNETES,
    HelmError,
    committed,
    helm,
    of_kind,
    render,
)
from support.observations import job
from unit.docs.pages import blocks

SNAPSHOTS = Path(__file__).with_name("chart_snapshots")
COMMON_LABELS = {
    "helm.sh/chart",
    *(f"app.kubernetes.io/{key}" for key in ("name", "instance", "version", "managed-by")),
}
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
SWITCHES = {
    "one-replica": {"replicas": 1, "leaderElection": False, "podDisruptionBudget": False},
    "namespaces": {"namespaces": ["lab", "prod"], "rbac.userRoles": False},
    "images": {
        "image": {"repository": "registry:5000/rl/operator", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "jobImages": {"trainer": {"repository": "rl/trainer", "tag": "7"}, "rayVersion": "2.61.0"},
    },
    "account": {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False, "userRoles": False},
        "selfTest": False,
    },
    "operator": {
        "log": {"format": "plain", "level": "DEBUG"},
        "listenPort": 9000,
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    },
    "scheduling": {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "podLabels": {"team": "rl", "app.kubernetes.io/name": "not-mine-to-change"},
        "podAnnotations": {"note": "x"},
    },
    "defaults-of-jobs": {
        "global": {"imageRegistry": "mirror:5000"},
        "jobDefaults": {
            "env": [{"name": "HF_ENDPOINT", "value": "http://hub"}],
            "runtimeClassName": "nvidia",
            "imagePullPolicy": "Always",
            "queueName": "default",
            "podSecurityContext": {"runAsNonRoot": True},
            "labels": {"cost-center": "rl"},
            "allowedKeys": ["team"],
        },
    },
    "monitors": {
        "serviceMonitor.enabled": True,
        "podMonitor": {"enabled": True, "interval": "5s", "labels": {"release": "prometheus"}},
    },
    "open-network": {"networkPolicy": {"jobs": False, "operator": False}},
    "unmonitored": {"networkPolicy.monitoring": []},
}


def documented_values():
    """The blocks of the pages with values of the chart."""
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    for block in blocks("yaml"):
        found = yaml.safe_load(block.text) if block.page.parent.name == "docs" else None
        if isinstance(found, dict) and found.keys() <= chart.keys():
            yield block


def shown(objects):
    """Each object as text, by kind and name: without the labels that all have, and the version.

    The definition has a test of its own.
    """
    texts = {}
    for item in objects:
        metadata = item["metadata"]
        name = f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        labels = {k: v for k, v in metadata["labels"].items() if k not in COMMON_LABELS}
        metadata = {**metadata, "labels": labels} if labels else without(metadata, "labels")
        if item["kind"] != DEFINITION:
            # Leaves on one line each: short, and a diff shows the whole of what changed.
            plain = yaml.safe_dump(
                {**item, "metadata": metadata}, sort_keys=False, width=100, default_flow_style=None
            )
            texts[name] = plain.replace(VERSION, "VERSION")
    return texts


def without(mapping, key):
    return {k: v for k, v in mapping.items() if k != key}


def changes(before, after):
    """What is gone, what is new, and what differs, by object."""
    lines = [f"- {name}" for name in before if name not in after]
    for name, text in after.items():
        if name not in before:
            lines += [f"+ {name}", *(f"    {line}" for line in text.splitlines())]
        elif text != before[name]:
            diff = difflib.unified_diff(
                before[name].splitlines(), text.splitlines(), lineterm="", n=0
            )
            lines += [f"~ {name}", *(f"    {d}" for d in list(diff)[2:] if not d.startswith("@@"))]
    return "\n".join(lines) + "\n"


def test_the_linter_finds_nothing():
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.parametrize("values", [{}, *SWITCHES.values()], ids=["defaults", *SWITCHES])
def test_every_object_is_valid_for_its_kind(values):
    for item in render(values):
        if not item["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(item, KUBERNETES, strict=True)


@pytest.mark.parametrize("block", list(documented_values()), ids=str)
def test_the_values_in_a_page_render_and_the_operator_takes_them(block):
    values = yaml.safe_load(block.text)
    for item in render(values):
        kubernetes_validate.validate(item, KUBERNETES, strict=True)
    operator_settings(values)


def test_the_defaults_render_as_in_their_snapshot():
    text = "---\n".join(shown(render()).values())
    assert text == committed(SNAPSHOTS / "defaults.yaml", text)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_what_its_snapshot_says(name):
    text = changes(shown(render()), shown(render(SWITCHES[name])))
    assert text == committed(SNAPSHOTS / f"{name}.txt", text)


def test_the_full_name_is_the_beginning_of_every_objects_name():
    objects = render({"fullnameOverride": "grpo", "dashboards.enabled": True})
    names = [o["metadata"]["name"] for o in objects if o["kind"] != DEFINITION]
    assert names and all(name.split("-")[0] == "grpo" for name in names)


def test_a_release_of_the_longest_name_has_valid_names():
    arguments = ("--kube-version", KUBERNETES, "--set", "dashboards.enabled=true")
    objects = yaml.safe_load_all(helm("template", "r" * 53, CHART, *arguments))
    names = [o["metadata"]["name"] for o in objects if o and o["kind"] != DEFINITION]
    assert names and all(len(name) <= 63 for name in names)


def test_the_operator_has_its_rights_in_the_cluster_and_in_its_own_namespace_for_the_lease():
    objects = render()
    assert of_kind(objects, "ClusterRole", "-grpo-operator")["rules"] == served_policy_rules()
    lease = of_kind(objects, "Role", "-lease")
    assert lease["rules"] == own_policy_rules("release-grpo-operator")
    assert lease["metadata"]["namespace"] == "ops"


def test_with_namespaces_the_operator_has_its_rights_there_and_nowhere_else():
    objects = render({"namespaces": ["lab", "prod"], "rbac.userRoles": False})
    roles = [item for item in objects if item["metadata"]["name"].endswith("-grpo-operator")]
    for kind in ("Role", "RoleBinding"):
        namespaces = [o["metadata"]["namespace"] for o in roles if o["kind"] == kind]
        assert namespaces == ["lab", "prod"]
    assert all(o["rules"] == served_policy_rules() for o in roles if o["kind"] == "Role")
    assert not [o for o in objects if o["kind"].startswith("ClusterRole")]


def operator_settings(values):
    """The settings that the operator reads in a pod of the release."""
    (container,) = of_kind(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    fields = {"POD_NAME": "pod", "POD_NAMESPACE": "ops"}
    env = {v["name"]: v.get("value", fields.get(v["name"])) for v in container["env"]}
    return Settings.from_environment(env), env


def test_the_operators_defaults_are_those_of_the_chart():
    settings, _ = operator_settings({"networkPolicy.jobs": False})
    images = Images(f"grpo-trainer:{VERSION}", f"grpo-trainer-vllm:{VERSION}")
    in_a_pod = {"identity": "pod", "lease_namespace": "ops", "lease_name": "release-grpo-operator"}
    assert replace(settings, images=Images()) == replace(Settings(), **in_a_pod)
    assert settings.images == images


def test_every_setting_of_the_operator_is_a_value_of_the_chart():
    _, env = operator_settings({})
    read = Path(Settings.from_environment.__code__.co_filename).read_text().split('"')
    assert {name for name in read if name.startswith(("GRPO_", "POD_"))} <= env.keys()


def test_the_definition_is_the_generated_one_and_outlives_the_release():
    definition = of_kind(render(), DEFINITION)
    metadata = definition["metadata"]
    assert metadata.pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert metadata.pop("labels")["app.kubernetes.io/managed-by"] == "Helm"
    assert definition == yaml.safe_load((CHART / "files" / "grpojobs.yaml").read_text())


def test_the_definition_can_be_deleted_with_the_release_or_left_out():
    assert "annotations" not in of_kind(render({"crds.keep": False}), DEFINITION)["metadata"]
    assert DEFINITION not in [item["kind"] for item in render({"crds.install": False})]


def test_the_monitor_of_drivers_finds_the_head_of_a_job_and_no_other_pod():
    monitor = of_kind(render({"podMonitor.enabled": True}), "PodMonitor")["spec"]
    cluster = ray_cluster(job(), Settings())["spec"]
    selected = [
        group["template"]["spec"]["containers"][0]["ports"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
        if monitor["selector"]["matchLabels"].items()
        <= group["template"]["metadata"]["labels"].items()
    ]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert [
        [p["containerPort"] for p in ports if p["name"] == endpoint["port"]] for ports in selected
    ] == [[DRIVER_PORT]]


def test_monitors_select_the_namespaces_that_the_operator_serves():
    everywhere = of_kind(render({"podMonitor.enabled": True}), "PodMonitor")["spec"]
    named = of_kind(render({"podMonitor.enabled": True, "namespaces": ["lab"]}), "PodMonitor")[
        "spec"
    ]
    assert everywhere["namespaceSelector"] == {"any": True}
    assert named["namespaceSelector"] == {"matchNames": ["lab"]}


def test_the_pods_of_jobs_allow_the_operator_of_the_release():
    objects = render()
    _, env = operator_settings({})
    access = NetworkAccess.parse("GRPO_NETWORK_POLICY", env["GRPO_NETWORK_POLICY"])
    (peer,) = access.operator
    labels = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ops"}
    (rule,) = of_kind(objects, "NetworkPolicy")["spec"]["ingress"]
    assert list(access.monitoring) == rule["from"]


def test_dashboards_are_in_config_maps_unchanged():
    objects = render({"dashboards": {"enabled": True, "annotations": {"folder": "GRPO"}}})
    files = {path.name: json.loads(path.read_text()) for path in CHART.glob("dashboards/*.json")}
    maps = [item for item in objects if item["kind"] == "ConfigMap"]
    assert all(m["metadata"]["labels"]["grafana_dashboard"] == "1" for m in maps)
    assert all(m["metadata"]["annotations"] == {"folder": "GRPO"} for m in maps)
    assert {name: json.loads(text) for m in maps for name, text in m["data"].items()} == files
    assert files


def test_alerts_are_in_the_rule_unchanged_but_for_links_to_the_runbook():
    page = "https://wiki.example.com/grpo/runbook"
    values = {"prometheusRule": {"enabled": True, "runbookUrl": page}}
    rule = of_kind(render(values), "PrometheusRule")
    text = (CHART / "alerts" / "rules.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(text.replace("docs/runbook.md#", f"{page}#"))
    assert rule["spec"]["groups"]


def test_alerts_have_no_links_while_the_runbook_has_no_address():
    rule = of_kind(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    expected = yaml.safe_load((CHART / "alerts" / "rules.yaml").read_text())
    for alert in (alert for group in expected["groups"] for alert in group["rules"]):
        del alert["annotations"]["runbook_url"]
    assert rule["spec"] == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicass": 1}, "additional properties 'replicass' not allowed"),
        ({"image.tagg": "1"}, "at '/image': additional properties 'tagg' not allowed"),
        ({"log.level": "TRACE"}, "one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"namespaces": ["Lab"]}, "at '/namespaces/0': 'Lab' does not match"),
        ({"image.digest": "latest"}, "at '/image/digest': 'latest' does not match"),
        ({"networkPolicy.monitoring": [{}]}, "at '/networkPolicy/monitoring/0'"),
        ({"podMonitor.interval": 15}, "at '/podMonitor/interval': got number, want string"),
        ({"prometheusRule.runbookUrl": "docs/runbook.md"}, "at '/prometheusRule/runbookUrl'"),
        ({"leaderElection": False}, "set replicas to 1 or leaderElection to true"),
        ({"serviceAccount.create": False}, "name the ServiceAccount to use"),
    ],
)
def test_an_invalid_value_is_refused_with_its_path(values, message):
    with pytest.raises(HelmError) as refusal:
        render(values)
    assert message in str(refusal.value)
