"""What a cluster with real nodes can have beside Kubernetes itself."""

import json
from dataclasses import dataclass

import build
import container_images
import credentials
import network
from components import Component
from kubectl import Kubectl
from launch import Launch, manifest
from namespaces import Namespaces
from runtimes import Runtimes

# Of kube-network-policies, which decides on what the firewall hands to this queue.
_QUEUE = 98
_POLICIES_IMAGE = "localhost/kube-network-policies:0.8.0"
_PROMETHEUS_IMAGE = "localhost/prometheus:v3.16.0"
_RELOADER_IMAGE = "localhost/prometheus-config-reloader:v0.85.0"
_KUEUE_RELEASED = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue"
_KUEUE_NAME, _KUEUE_TAG = "localhost/kueue", "v0.17.0"
_NOBODY = "65534"


@dataclass(frozen=True)
class Addons:
    launch: Launch
    kubectl: Kubectl
    runtimes: Runtimes
    inside: Namespaces

    def volumes(self) -> None:
        """Volumes on demand: `local-path`, the default, of one node; `shared` of all."""
        volumes = self.launch.state / "volumes"
        node_paths = {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [str(volumes / "own")]}
        classes = {
            "local-path": {"nodePathMap": [node_paths]},
            "shared": {"sharedFileSystemPath": str(volumes / "shared")},
        }
        configuration = self.launch.state / "nodes" / "volumes.json"
        configuration.write_text(json.dumps({"storageClassConfigs": classes}))
        helper = self.launch.state / "nodes" / "volume-pod.yaml"
        helper.write_text(manifest("volume-pod.yaml", image=container_images.TOOLBOX))
        self.kubectl.apply(manifest("volumes.yaml"))
        program = build.programs("node") / "local-path-provisioner"
        kubeconfig = self.launch.components.keys.kubeconfig(credentials.VOLUMES)
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--config={configuration}",
            f"--helper-pod-file={helper}",
            f"--helper-image={container_images.TOOLBOX}",
        )
        self.launch.start(Component(credentials.VOLUMES, [str(program), "start", *flags]))

    def network_policies(self) -> None:
        """One enforcer for all nodes, since they share a network namespace and its queue."""
        name = "kube-network-policies"
        image = container_images.of_program(_POLICIES_IMAGE, build.programs("node") / name)
        self.runtimes.load_made(image, self.launch.state)
        self.kubectl.apply(
            manifest(
                "network-policies.yaml",
                address=network.FIRST.address,
                image=_POLICIES_IMAGE,
                node=network.FIRST.name,
                queue=str(_QUEUE),
            )
        )
        self._wait_for_deployment(name, "kube-system")
        # Its own rules need a kernel with NFT_QUEUE; these need XT_TARGET_NFQUEUE, which more have.
        chain = "iptables -t mangle -A POD-POLICIES"
        to_queue = f"-j NFQUEUE --queue-num {_QUEUE}"
        rules = [
            "iptables -t mangle -N POD-POLICIES",
            # The node's own traffic: probes, logs, what is forwarded to a pod.
            f"{chain} -m owner --uid-owner 0 -j RETURN",
            f"{chain} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
            f"{chain} -s {network.PODS} {to_queue}",
            f"{chain} -d {network.PODS} {to_queue}",
            "iptables -t mangle -A POSTROUTING -j POD-POLICIES",
        ]
        self.inside.run("sh", "-ec", "\n".join(rules))

    def monitoring(self) -> None:
        """The Prometheus operator, and the images of the Prometheus that it starts when asked."""
        programs = build.programs("prometheus-operator")
        for name, program in (
            (_PROMETHEUS_IMAGE, build.programs("monitoring") / "prometheus"),
            (_RELOADER_IMAGE, programs / "prometheus-config-reloader"),
        ):
            image = container_images.of_program(name, program, user=_NOBODY)
            self.runtimes.load_made(image, self.launch.state)
        for definition in sorted((programs / "manifests").iterdir()):
            self.kubectl.apply(definition.read_text())
        self.kubectl.wait("crd --all", "condition=Established", self.launch.seconds_left())
        kubeconfig = self.launch.components.keys.kubeconfig(credentials.MONITORING)
        address = f"127.0.0.1:{self.launch.components.ports.monitoring}"
        argv = [
            *("env", f"KUBECONFIG={kubeconfig}", str(programs / "prometheus-operator")),
            f"-web.listen-address={address}",
            "-kubelet-endpoints=false",
            f"-prometheus-config-reloader={_RELOADER_IMAGE}",
            *("-config-reloader-cpu-limit=0", "-config-reloader-cpu-request=0"),
        ]
        operator = Component(credentials.MONITORING, argv, f"http://{address}/healthz")
        self.launch.wait_for_health(self.launch.start(operator))

    def kueue(self) -> None:
        """Kueue in a pod, with its webhooks."""
        programs = build.programs("kueue")
        name = f"{_KUEUE_NAME}:{_KUEUE_TAG}"
        image = container_images.of_program(name, programs / "kueue", path="/manager", user=_NOBODY)
        self.runtimes.load_made(image, self.launch.state)
        directory = self.launch.state / "nodes" / "kueue"
        directory.mkdir()
        (directory / "kustomization.yaml").write_text(
            manifest(
                "kueue-kustomization.yaml",
                released=_KUEUE_RELEASED,
                name=_KUEUE_NAME,
                tag=_KUEUE_TAG,
            )
        )
        (directory / "kueue.yaml").write_text((programs / "manifests" / "kueue.yaml").read_text())
        self.kubectl.apply_kustomization(directory)
        self._wait_for_deployment("kueue-controller-manager", "kueue-system")

    def _wait_for_deployment(self, name: str, namespace: str) -> None:
        seconds = self.launch.seconds_left()
        self.kubectl.wait(f"deployment/{name}", "condition=Available", seconds, namespace)
