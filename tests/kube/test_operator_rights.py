"""The operator's rights.

Aspects: exactly the rights of its role, in one namespace and in all; a missing right.
"""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from kubernetes.aio import client

from grpo_operator.rbac import OWN_RULES, RULES
from kube.accounts import ServiceAccount, own_policy_rules, served_policy_rules
from kube.api_proxy import ApiProxy
from kube.fake_ray import FakeRay
from kube.harness import Cluster, until
from kube.operator_harness import JOBS, Jobs, condition_of, manifest, running_operator


@pytest.fixture
async def account(jobs: Jobs) -> ServiceAccount:
    """A service account that may do nothing yet."""
    return await ServiceAccount.create(jobs.api, jobs.namespace)


@contextlib.asynccontextmanager
async def allowed(account: ServiceAccount, scope: str) -> AsyncIterator[None]:
    """Inside the block the account has the rights of an operator of one namespace, or of all."""
    await account.grant(own_policy_rules("grpo-operator"))
    if scope == "all namespaces":
        async with account.granted_everywhere(served_policy_rules()):
            yield
    else:
        await account.grant(served_policy_rules())
        yield


async def until_no_other_jobs(api: client.ApiClient) -> None:
    """Namespaces of earlier tests are deleted in the background."""
    listing = client.CustomObjectsApi(api).list_cluster_custom_object
    await until(lambda jobs: not jobs, listing, *JOBS, timeout=60)


@pytest.mark.parametrize("scope", ["one namespace", "all namespaces"])
async def test_its_role_allows_exactly_what_it_does(
    cluster: Cluster,
    jobs: Jobs,
    ray: FakeRay,
    proxy: ApiProxy,
    account: ServiceAccount,
    tmp_path: Path,
    scope: str,
):
    await until_no_other_jobs(jobs.api)
    original = account.kubeconfig(cluster.kubeconfig, tmp_path, await account.token())
    kubeconfig = proxy.kubeconfig(original, tmp_path / "proxied")
    variables = {
        "GRPO_LEADER_ELECTION": "true",
        "GRPO_NAMESPACES": jobs.namespace if scope == "one namespace" else "",
    }
    log = tmp_path / "operator.log"
    replica = partial(running_operator, kubeconfig, jobs.namespace, ray, log, **variables)
    async with allowed(account, scope):
        async with replica():
            environment = {"module": "env.py:Echo"}
            scored = {"environment": environment, "reward": {"type": "environment"}}
            await jobs.create(manifest(ttlSecondsAfterFinished=1, **scored))
            await jobs.until_phase("Running")
            await jobs.create_claim("unbound", "missing")
            await jobs.create(manifest("waiting", storage={"claimName": "unbound"}))
            await jobs.until_reason("ProvisioningFailed", "waiting")
            await jobs.delete("waiting")
        # The next one reads the key, which the first has created.
        async with replica():
            await jobs.patch({"producers": {"replicas": 3}})
            await jobs.until(lambda job: job["status"]["workers"]["producersReady"] == 3)
            await jobs.patch({"suspend": True})
            await jobs.until_phase("Suspended")
            await jobs.patch({"suspend": False})
            await jobs.until_phase("Running")
            (await ray.only_head()).end(0)
            await jobs.until_gone()
    forbidden = [call for call, status in proxy.answered if status == 403]
    assert forbidden == []
    rules = {
        (verb, group, resource)
        for table in (RULES, OWN_RULES)
        for (group, resource), verbs in table.items()
        for verb in verbs
    }
    used = {(call.verb, call.group, call.resource) for call in proxy.calls}
    assert used == rules


async def test_a_missing_right_is_in_the_status_and_used_once_it_is_granted(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, account: ServiceAccount, tmp_path: Path
):
    rights = [*served_policy_rules(), *own_policy_rules("grpo-operator")]
    less = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "create"]}
        if rule["resources"] == ["rayclusters"]
        else rule
        for rule in rights
    ]
    await account.grant(less)
    kubeconfig = account.kubeconfig(cluster.kubeconfig, tmp_path, await account.token())
    async with running_operator(kubeconfig, jobs.namespace, ray, tmp_path / "log"):
        await jobs.create(manifest())
        refused = await jobs.until(
            lambda job: condition_of(job, "ClusterReady")["reason"] == "Forbidden"
        )
        message = condition_of(refused, "ClusterReady")["message"]
        assert 'cannot create resource "rayclusters"' in message
        await account.grant(rights)
        await jobs.until_phase("Running", timeout=60)
