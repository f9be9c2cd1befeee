"""The operator with what a pod has: the files of its service account and two variables.

Aspects: both of its clients authenticate; tokens that are renewed while it runs.
"""

import asyncio
from pathlib import Path

from kubernetes.aio import client, config

from kube.accounts import (
    ServiceAccount,
    own_policy_rules,
    pod_files,
    served_policy_rules,
    write_token,
)
from kube.fake_ray import FakeRay
from kube.harness import Cluster
from kube.operator_harness import CLUSTERS, Jobs, manifest, running_operator
from kube.relay import Relay

NO_KUBECONFIG = Path("/dev/null")


async def until_refused(kubeconfig: Path) -> None:
    """Waits until the API server takes its token no more."""
    async with await config.new_client_from_config(str(kubeconfig)) as api, asyncio.timeout(60):
        while True:
            try:
                await client.AuthenticationV1Api(api).create_self_subject_review({})
            except client.ApiException as error:
                if error.status == 401:
                    return
                raise
            await asyncio.sleep(0.5)  # no event shows when a token is refused


async def test_it_logs_in_with_its_service_account_and_follows_the_token(
    cluster: Cluster, jobs: Jobs, ray: FakeRay, relay: Relay, tmp_path: Path
):
    core = client.CoreV1Api(jobs.api)
    for name in ("first", "second"):
        await core.create_namespaced_secret(jobs.namespace, {"metadata": {"name": name}})
    account = await ServiceAccount.create(jobs.api, jobs.namespace)
    await account.grant([*served_policy_rules(), *own_policy_rules("grpo-operator")])
    token = await account.token("first")
    files = pod_files(cluster.kubeconfig, tmp_path / "account", token)
    service = {
        "KUBERNETES_SERVICE_HOST": relay.host,
        "KUBERNETES_SERVICE_PORT": f"{relay.own_port}",
    }
    log = tmp_path / "log"
    async with running_operator(
        NO_KUBECONFIG, jobs.namespace, ray, log, service_account=files, **service
    ) as operator:
        await jobs.create(manifest())
        await jobs.until_phase("Running")
        write_token(files, await account.token("second"))
        await core.delete_namespaced_secret("first", jobs.namespace)
        await until_refused(account.kubeconfig(cluster.kubeconfig, tmp_path, token))
        async with relay.down():  # the watches have to log in again
            (await ray.only_head()).end(0)
        await jobs.until_phase("Succeeded")
        await jobs.until_gone(CLUSTERS)
        await jobs.create(manifest("next"))
        await jobs.until_phase("Running", "next")
        assert operator.process.returncode is None
