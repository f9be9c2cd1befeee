"""One tenant, one namespace or one CRD does not affect the jobs of others.

Aspects: foreign objects with the operator's labels; hostile heads; a pod template with a
misspelt field; a namespace that the operator may no longer read; kinds that are not served for a
while.
"""

import functools
import gzip
from pathlib import Path

from aiohttp import web
from kubernetes.aio import client

from grpo_operator.clients.kube import Kube
from grpo_operator.controller.audit import Auditor
from grpo_operator.controller.cache import Cache
from grpo_operator.metrics import Metrics
from kube.accounts import ServiceAccount, own_policy_rules, served_policy_rules
from kube.api_proxy import ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import (
    Jobs,
    Operator,
    condition_of,
    manifest,
    running_operator,
    start,
)

MEBIBYTE = 2**20
RESTART_SECONDS = 90
"""For the check of the namespaces, and a restart of the watches."""


def pod(name: str, **labels: str) -> dict[str, object]:
    container = {"name": "ray", "image": "none"}
    metadata = {"name": name, "labels": {f"grpo-operator.io/{k}": v for k, v in labels.items()}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def test_pods_of_others_with_our_label_are_counted_and_nothing_else(jobs: Jobs):
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_pod(jobs.namespace, pod("empty", job=""))
    kube, metrics = Kube(jobs.api), Metrics()
    auditor = Auditor(kube, Cache(), [jobs.namespace], lambda key: None, metrics)
    await auditor.compare()
    await auditor.compare()
    assert auditor.missed == 0
    assert metrics.registry.get_sample_value("grpo_operator_foreign_objects") == 1


async def test_a_misspelt_field_of_a_pod_template_is_in_the_status(jobs: Jobs, operator: Operator):
    patch = {"spec": {"nodeSelectr": {"pool": "gpu"}}}
    await jobs.create(manifest(consumers={"accelerator": "cpu", "podTemplate": patch}))
    refused = await jobs.until(
        lambda job: condition_of(job, "ClusterReady")["reason"] == "InvalidPodTemplate"
    )
    assert "nodeSelectr" in condition_of(refused, "ClusterReady")["message"]
    assert await jobs.clusters() == []


@functools.cache
def bomb() -> bytes:
    return gzip.compress(b"[" + b" " * (128 * MEBIBYTE), compresslevel=1)


def compressed() -> web.Response:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=bomb(), headers=headers)


def redirected() -> web.Response:
    return web.Response(status=307, headers={"Location": "/tenant/trap/9464/progress"})


def nested() -> web.Response:
    return web.json_response(text="[" * 500_000)


async def test_a_hostile_head_costs_no_memory_reaches_nothing_and_delays_no_other_job(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    bomb()
    before = peak_memory(operator)
    for response in (compressed, redirected, nested):
        head.hostile = response
        await head.until_polled(2)
    await jobs.create(manifest("other"))
    await jobs.until_phase("Running", "other")
    (other,) = [found for found in ray.heads.values() if found is not head]
    other.end(0)
    await jobs.until_phase("Succeeded", "other")
    found = await jobs.get()
    assert (found["status"]["phase"], found["status"]["restarts"]) == ("Running", 0)
    assert "trap" not in ray.heads
    assert peak_memory(operator) - before < 64 * MEBIBYTE
    head.hostile = None
    head.end(0)
    await jobs.until_phase("Succeeded")


def peak_memory(operator: Operator) -> int:
    """The most memory that the operator has had, in bytes."""
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


async def test_a_copy_of_the_head_with_its_labels_does_not_end_the_run(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray)
    (original,) = await jobs.pods("headgroup")
    labels = {k: v for k, v in original["metadata"]["labels"].items() if k != "ray.io/cluster"}
    copy = {"metadata": {"name": "a-copy", "labels": labels}, "spec": pod("a-copy")["spec"]}
    core = client.CoreV1Api(jobs.api)
    await core.create_namespaced_pod(jobs.namespace, copy)
    head.report(1)
    await jobs.until(lambda job: job["status"]["progress"]["step"] == 1)
    await core.delete_namespaced_pod("a-copy", jobs.namespace, grace_period_seconds=0)
    head.report(2)
    found = await jobs.until(lambda job: job["status"]["progress"]["step"] == 2)
    assert (found["status"]["phase"], found["status"]["restarts"]) == ("Running", 0)
    assert head.attempts == [1]


async def test_the_status_says_what_confines_the_programs_of_completions(
    operator: Operator, jobs: Jobs, ray: FakeRay
):
    head = await start(jobs, ray, reward={"type": "code", "allowUnconfined": True})
    for found, value, reason in (
        ("landlock", "True", "Landlock"),
        ("none", "False", "Unconfined"),
    ):
        head.report_code_protection(found)
        job = await jobs.until(
            lambda job, reason=reason: condition_of(job, "CodeConfined")["reason"] == reason
        )
        assert condition_of(job, "CodeConfined")["status"] == value
    assert job["status"]["phase"] == "Running"


async def test_a_namespace_that_cannot_be_read_any_more_does_not_concern_the_others(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, tmp_path: Path
):
    core, rbac = client.CoreV1Api(jobs.api), client.RbacAuthorizationV1Api(jobs.api)
    other = f"{jobs.namespace}-other"
    await core.create_namespace({"metadata": {"name": other}})
    account = await ServiceAccount.create(jobs.api, jobs.namespace)
    await account.grant([*served_policy_rules(), *own_policy_rules("grpo-operator")])
    role = {"metadata": {"name": "operator"}, "rules": served_policy_rules()}
    await rbac.create_namespaced_role(other, role)
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": jobs.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    binding = {"metadata": {"name": "operator"}, "roleRef": reference, "subjects": [subject]}
    await rbac.create_namespaced_role_binding(other, binding)
    kubeconfig = account.kubeconfig(cluster.kubeconfig, tmp_path, await account.token())
    both = {"GRPO_NAMESPACES": f"{jobs.namespace},{other}"}
    log = tmp_path / "log"
    try:
        async with running_operator(kubeconfig, jobs.namespace, ray, log, **both) as operator:
            await operator.until_ready()
            await rbac.delete_namespaced_role_binding("operator", other)
            await operator.until_metric("grpo_operator_unserved_namespaces 1.0", RESTART_SECONDS)
            await jobs.create(manifest())
            await jobs.until_phase("Running", timeout=RESTART_SECONDS)
            await rbac.create_namespaced_role_binding(other, binding)
            await Jobs(jobs.api, other).create(manifest(suspend=True))
            await Jobs(jobs.api, other).until_phase("Suspended", timeout=RESTART_SECONDS)
            assert operator.process.returncode is None
            assert (await jobs.get())["status"]["restarts"] == 0
    finally:
        await core.delete_namespace(other)


async def test_kinds_that_are_not_served_for_a_while_leave_running_jobs_alone(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, proxy: ApiProxy, tmp_path: Path
):
    kubeconfig = proxy.kubeconfig(cluster.kubeconfig, tmp_path / "proxied")
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log") as operator:
        await jobs.create(manifest())
        await jobs.until_phase("Running")
        proxy.fault = lambda call: 404 if call.verb in ("list", "watch") else None
        await operator.until_metric("grpo_operator_unserved_namespaces 1.0", RESTART_SECONDS)
        proxy.fault = lambda call: None
        await operator.until_ready()
        (await ray.only_head()).end(0)
        await jobs.until_phase("Succeeded")
        assert operator.process.returncode is None
    assert (await ray.only_head()).attempts == [1]
