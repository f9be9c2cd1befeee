"""GRPOJobs on a real API server with the committed CRD.

Aspects: defaults and round trip; invalid manifests, refused with the same message as on the command
line; mutable and immutable fields; the status and scale subresources; columns.
"""

import json

import pytest
import yaml
from kubernetes.aio import client

from grpo_trainer.spec import GRPOJob, InvalidManifestError, parse_manifest
from kube.harness import Cluster, kubectl
from kube.operator_harness import GROUP, PLURAL, VERSION, Jobs, install_definition, manifest

LONG = "a" * 45
_COLUMNS = ["NAME", "PHASE", "REASON", "STEP", "REWARD", "SAMPLES/S", "BUFFER", "ATTEMPT", "AGE"]


def spec(path: str, value: object) -> dict[str, object]:
    """A manifest with one field changed."""
    body = manifest()
    *parents, last = path.split(".")
    node = body["spec"]
    for name in parents:
        node = node.setdefault(name, {})
        assert isinstance(node, dict)
    node[last] = value
    return body


def named(name: str) -> dict[str, object]:
    return manifest(name)


SINGLE_FIELDS = [
    ("sampling.numGenerations", 1, "greater than or equal to 2"),
    ("sampling.temperature", 0, "greater than 0"),
    ("sampling.topP", 1.5, "less than or equal to 1"),
    ("sampling.topK", 0, "greater than or equal to 1"),
    ("sampling.maxNewTokens", 0, "greater than or equal to 1"),
    ("sampling.stopStrings", [""], "at least 1 char"),
    ("algorithm.name", "PPO", 'supported values: "GRPO", "DAPO"'),
    ("algorithm.learningRate", 0, "greater than 0"),
    ("algorithm.learningRate", "fast", "must be of type number"),
    ("algorithm.klCoefficient", -0.1, "greater than or equal to 0"),
    ("algorithm.clipLow", 1, "less than 1"),
    ("algorithm.lossAggregation", "median", 'supported values: "sample", "token"'),
    ("algorithm.importanceSamplingCap", 0.5, "greater than or equal to 1"),
    ("algorithm.dynamicSampling.maxAttempts", 0, "greater than or equal to 1"),
    ("model.path", "", "at least 1 char"),
    ("model.dtype", "float16", 'supported values: "float32", "bfloat16"'),
    ("model.trustRemoteCode", "yes", "must be of type boolean"),
    ("dataset.path", "", "at least 1 char"),
    ("evaluation.interval", -1, "greater than or equal to 0"),
    ("numEpisodes", 0, "greater than or equal to 1"),
    ("maxSteps", 0, "greater than or equal to 1"),
    ("seed", -1, "greater than or equal to 0"),
    ("reward.type", "vibes", "supported values"),
    ("reward.timeoutSeconds", 0, "greater than 0"),
    ("buffer.maxStaleness", -1, "greater than or equal to 0"),
    ("buffer.maxPrompts", -2, "greater than or equal to -1"),
    ("producers.replicas", 0, "greater than or equal to 1"),
    ("producers.replicas", 1.5, "must be of type integer"),
    ("producers.backend", "sglang", 'supported values: "transformers", "vllm"'),
    ("producers.podTemplate", "spec", "must be of type object"),
    ("producers.resources", {"limits": {"cpu": "many"}}, "should match"),
    ("producers.tolerations", [{"operator": "Sometimes"}], "should match"),
    ("consumers.zeroStage", 3, "less than or equal to 2"),
    ("checkpoint.keepLast", 0, "greater than or equal to 1"),
    ("storage", {"size": "huge"}, "should match"),
    ("storage", {"size": "32mi"}, "should match"),
    ("storage", {"claimName": "My Claim"}, "should match"),
    ("storage", {"size": "1Gi", "storageClassName": "Fast!"}, "should match"),
    ("queueName", "My Queue!", "should match"),
    ("queueName", "a" * 64, "Too long"),
    ("priorityClassName", "High", "should match"),
    ("serviceAccountName", "a_b", "should match"),
    ("imagePullSecrets", [{"name": "a/b"}], "should match"),
    ("envFrom", [{"secretRef": {"name": "A"}}], "should match"),
    ("head.nodeSelector", {"a b": "c"}, "keys must be a label key"),
    ("head.nodeSelector", {"a": "b c"}, "should match"),
    ("head.resources", {"limits": {"gpu": 1}}, "keys must be cpu, memory"),
    ("head.resources", {"limits": {"hugepages-big": "1Gi"}}, "keys must be cpu, memory"),
    ("head.image", "my image", "should match"),
    ("consumers.image", "registry/Team/trainer", "should match"),
    ("consumers.accelerator", "gpu", "should match"),
    (
        "storage.accessModes",
        ["ReadWriteOncePod"],
        'supported values: "ReadWriteOnce", "ReadWriteMany"',
    ),
    ("storage.accessModes", [], "should have at least 1 items"),
    ("env", [{"name": "1X", "value": "y"}], "should match"),
    ("env", [{"name": "X"}, {"name": "X"}], "Duplicate value"),
    ("env", [{"value": "y"}], "Required value"),
    ("labels", {"a b": "c"}, "keys must be a label key"),
    ("labels", {"a": "b c"}, "should match"),
    ("managedBy", "other", "should match"),
    ("backoffLimit", -1, "greater than or equal to 0"),
    ("activeDeadlineSeconds", 0, "greater than or equal to 1"),
    ("suspend", "maybe", "must be of type boolean"),
]
ACROSS_FIELDS = [
    {"consumers": {"accelerator": "cpu", "tensorParallelSize": 3}},
    {"consumers": {"accelerator": "cpu", "pipelineParallelSize": 2, "zeroStage": 2}},
    {
        "model": {"dtype": "float32"},
        "consumers": {"accelerator": "cpu", "tensorParallelSize": 2, "zeroStage": 1},
    },
    {"batch": {"trainBatchSize": 30}},
    {"batch": {"inferenceBatchSize": 9}},
    {"batch": {"trainMicrobatchSize": 65}},
    {"algorithm": {"dynamicSampling": {"minAccuracy": 0.5, "maxAccuracy": 0.5}}},
    {"algorithm": {"overlong": {"bufferTokens": 4000}}},
    {"algorithm": {"learningRate": 0.5, "optimizer": {"minLearningRate": 0.75}}},
    {"maxSteps": 5, "algorithm": {"optimizer": {"warmupSteps": 5}}},
    {"reward": {"type": "custom"}},
    {"reward": {"type": "boxed", "custom": {"module": "m"}}},
    {"producers": {"accelerator": "cpu", "minAvailable": 3}},
    {"producers": {"accelerator": "cpu", "tensorParallelSize": 2}},
    {"storage": {"claimName": "v", "size": "1Gi"}},
    {"storage": {}},
    {"storage": {"size": "0Gi"}},
    *(
        {pool: {"resources": resources}}
        for pool in ("head", "producers", "consumers")
        for resources in (
            {"limits": {"nvidia.com/gpu": "0.5"}},
            {"requests": {"memory": "2Gi"}, "limits": {"memory": "2G"}},
            {"requests": {"cpu": 2}, "limits": {"cpu": "1900m"}},
            {"requests": {"example.com/nic": 1}},
            {"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}},
            {"limits": {"hugepages-2Mi": "4Mi"}},
        )
    ),
    {"head": {"tolerations": [{"value": "a"}]}},
    {"head": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
    {"head": {"tolerations": [{"key": "a", "tolerationSeconds": 3}]}},
    {"env": [{"name": "A", "valueFrom": {}}]},
    {"envFrom": [{}]},
    {"labels": {"ray.io/cluster": "other"}},
    {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
    {"annotations": {"app.kubernetes.io/name": "other"}},
]


@pytest.fixture
async def server(api: client.ApiClient) -> client.CustomObjectsApi:
    """An API server with the definition of GRPOJob."""
    await install_definition(api)
    return client.CustomObjectsApi(api)


async def refusal(server: client.CustomObjectsApi, body: dict[str, object]) -> str:
    """The message with which the API server refuses a manifest."""
    with pytest.raises(client.ApiException) as error:
        await server.create_namespaced_custom_object(
            GROUP, VERSION, "default", PLURAL, body, dry_run="All"
        )
    assert error.value.status == 422, error.value.body
    return json.loads(error.value.body)["message"]


@pytest.mark.parametrize(
    ("path", "value", "words"), SINGLE_FIELDS, ids=[f"{p}={v}" for p, v, _ in SINGLE_FIELDS]
)
async def test_a_bad_field_is_refused_by_name(
    server: client.CustomObjectsApi, path: str, value: object, words: str
):
    body = spec(path, value)
    message = await refusal(server, body)
    assert f"spec.{path}" in message
    assert words in message
    with pytest.raises(InvalidManifestError):
        parse_manifest(body)


@pytest.mark.parametrize("fields", ACROSS_FIELDS, ids=[json.dumps(f) for f in ACROSS_FIELDS])
async def test_rules_across_fields_have_the_messages_of_the_command_line(
    server: client.CustomObjectsApi, fields
):
    body = manifest(**fields)
    message = await refusal(server, body)
    with pytest.raises(InvalidManifestError) as error:
        parse_manifest(body)
    for fault in error.value.faults:
        assert fault.path in message
        assert f"{fault.path}: {fault.kind}: " in message
        assert fault.must in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (named(LONG), "must have at most 44 characters"),
        (named("1st"), "begin with a letter"),
        (named("a.b"), "lower-case letters, digits and '-'"),
        ({**manifest(), "spec": {}}, "spec.storage: Required value"),
        ({**manifest(), "spec": None}, "spec: Required value"),
        (manifest(tracking={"wandb": {"project": "p"}}), "a Secret with key WANDB_API_KEY"),
        (manifest(tracking={"mlflow": {}}), "spec.tracking.mlflow.trackingUri: Required value"),
    ],
    ids=[
        *("long name", "digit first", "dots", "no volume", "no spec"),
        *("wandb without its secret", "mlflow without its address"),
    ],
)
async def test_rules_of_clusters_only_are_checked_too(server: client.CustomObjectsApi, body, words):
    assert words in await refusal(server, body)


async def test_a_name_of_the_maximum_length_is_valid(jobs: Jobs):
    await jobs.create(manifest("a" * 44))


async def test_a_minimal_job_reads_back_with_the_defaults_of_the_records(jobs: Jobs):
    await jobs.create(manifest())
    stored = await jobs.get()
    assert parse_manifest(stored).spec == parse_manifest(manifest()).spec
    whole = GRPOJob.model_validate(manifest()).spec.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    for section in ("algorithm", "sampling", "batch", "buffer", "model"):
        assert stored["spec"][section] == whole[section]


async def test_kubectl_applies_it_and_then_shows_no_difference(cluster: Cluster, jobs: Jobs):
    text = yaml.safe_dump(manifest(producers={"podTemplate": {"spec": {"hostNetwork": True}}}))
    where = ("-n", jobs.namespace)
    assert kubectl(cluster, "apply", *where, "-f", "-", stdin=text).returncode == 0
    difference = kubectl(cluster, "diff", *where, "-f", "-", stdin=text)
    assert (difference.returncode, difference.stdout) == (0, "")


async def test_kubectl_refuses_an_unknown_field(cluster: Cluster, jobs: Jobs):
    text = yaml.safe_dump(spec("sampling.numGeneration", 4))
    answer = kubectl(cluster, "apply", "-n", jobs.namespace, "-f", "-", stdin=text)
    assert answer.returncode != 0
    assert 'unknown field "spec.sampling.numGeneration"' in answer.stderr


IMMUTABLE = [
    {"model": {"path": "other"}},
    {"algorithm": {"learningRate": 1}},
    {"algorithm": {"klCoefficient": 0.5}},
    {"consumers": {"replicas": 2}},
    {"producers": {"minAvailable": 2}},
    {"storage": {"size": "2Gi"}},
    {"maxSteps": 3},
    {"reward": {"type": "boxed"}},
    {"tracking": {"wandb": {"secretName": "s"}}},
]


def leaf(fields: dict[str, object]) -> str:
    (name,), (value,) = fields.keys(), fields.values()
    deeper = isinstance(value, dict) and name not in ("podTemplate", "storage", "wandb")
    return f"{name}.{leaf(value)}" if deeper else name


@pytest.mark.parametrize("fields", IMMUTABLE, ids=leaf)
async def test_an_immutable_field_is_refused_by_name(jobs: Jobs, fields):
    await jobs.create(manifest())
    with pytest.raises(client.ApiException) as error:
        await jobs.patch(fields)
    message = json.loads(error.value.body)["message"]
    assert f"spec.{leaf(fields)} is immutable; create a new GRPOJob" in message


WHILE_SUSPENDED = [
    {"consumers": {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}},
    {"producers": {"podTemplate": {"spec": {"hostNetwork": True}}}},
    {"head": {"image": "other"}},
    {"head": {"nodeSelector": {"pool": "big"}}},
    {"consumers": {"tolerations": [{"operator": "Exists"}]}},
    {"env": [{"name": "X", "value": "y"}]},
    {"queueName": "q"},
    {"labels": {"team": "rl"}},
    {"annotations": {"team": "rl"}},
]


def outer(fields: dict[str, object]) -> str:
    """Path of a field that may change while the job is suspended."""
    (name,), (value,) = fields.keys(), fields.values()
    pool = name in ("head", "producers", "consumers")
    return f"{name}.{next(iter(value))}" if pool and isinstance(value, dict) else name


@pytest.mark.parametrize("fields", WHILE_SUSPENDED, ids=outer)
async def test_a_field_of_pods_may_change_while_the_job_is_suspended_only(jobs: Jobs, fields):
    await jobs.create(manifest())
    for phase in ("Running", "Suspending"):
        await jobs.patch_status({"phase": phase})
        with pytest.raises(client.ApiException) as error:
            await jobs.patch(fields)
        message = json.loads(error.value.body)["message"]
        assert f"spec.{outer(fields)}: Forbidden: may change only while the job is" in message
        await jobs.patch({"suspend": True})
    await jobs.patch_status({"phase": "Suspended"})
    section, value = next(iter(fields.items()))
    changed = (await jobs.patch({**fields, "suspend": False}))["spec"][section]
    assert changed == (value if not isinstance(value, dict) else {**changed, **value})


async def test_a_suspended_job_without_a_status_may_change(jobs: Jobs):
    await jobs.create(manifest(suspend=True))
    changed = await jobs.patch({"head": {"image": "other"}})
    assert changed["spec"]["head"]["image"] == "other"


MUTABLE = {
    "suspend": True,
    "producers": {"replicas": 5},
    "backoffLimit": 7,
    "activeDeadlineSeconds": 100,
    "startupDeadlineSeconds": 100,
    "stallTimeoutSeconds": 100,
    "ttlSecondsAfterFinished": 100,
}


@pytest.mark.parametrize("name", MUTABLE)
async def test_a_mutable_field_can_be_changed_and_changed_back(jobs: Jobs, name):
    await jobs.create(manifest())
    before = (await jobs.get())["spec"].get(name)
    changed = await jobs.patch({name: MUTABLE[name]})
    assert changed["spec"][name] != before
    back = await jobs.patch({name: before})
    assert back["spec"].get(name) == before


async def test_the_producers_of_a_queued_job_are_fixed(jobs: Jobs):
    await jobs.create(manifest(queueName="gpus"))
    with pytest.raises(client.ApiException) as error:
        await jobs.patch({"producers": {"replicas": 5}})
    message = json.loads(error.value.body)["message"]
    assert "spec.producers.replicas: Forbidden: while queueName is set" in message
    await jobs.patch({"suspend": True})
    changed = await jobs.patch({"producers": {"replicas": 5}})
    assert changed["spec"]["producers"]["replicas"] == 5


async def test_kubectl_scale_changes_the_producers(cluster: Cluster, jobs: Jobs):
    await jobs.create(manifest())
    scaled = kubectl(cluster, "scale", "-n", jobs.namespace, "grpo/job", "--replicas=4")
    assert scaled.returncode == 0, scaled.stderr
    assert (await jobs.get())["spec"]["producers"]["replicas"] == 4


async def test_the_status_is_a_subresource_and_shown_in_columns(cluster: Cluster, jobs: Jobs):
    await jobs.create(manifest())
    status = {
        "phase": "Running",
        "attempt": 2,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Running",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
        "progress": {"step": 7, "totalSteps": 100},
        "metrics": {"reward": 0.5, "samplesPerSecond": 12.5, "bufferDepth": 3},
    }
    body = {"status": status, "spec": {"seed": 7}}
    await client.CustomObjectsApi(jobs.api).patch_namespaced_custom_object_status(
        GROUP, VERSION, jobs.namespace, PLURAL, "job", body,
        _content_type="application/merge-patch+json",
    )  # fmt: skip
    assert (await jobs.get())["spec"]["seed"] == 42
    shown = kubectl(cluster, "get", "grpo", "-n", jobs.namespace).stdout.splitlines()
    assert shown[0].split() == _COLUMNS
    assert shown[1].split()[:-1] == ["job", "Running", "Running", "7", "0.5", "12.5", "3", "2"]
    assert "job" in kubectl(cluster, "get", "ml", "-n", jobs.namespace).stdout
