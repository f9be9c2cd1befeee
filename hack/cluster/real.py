"""A cluster whose nodes are real: pods run in containers, reach each other and have volumes.

All of it runs in namespaces of its own. A gateway carries the API server's port, and those that
tell of the components' health, to this machine's loopback.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import build
import cgroups
import container_images
import credentials
import namespaces
import network
import nodes
import requirements
from addons import Addons
from components import Component, Ports
from image_store import ImageStore
from kubectl import Kubectl
from launch import Launch, manifest
from namespaces import Namespaces
from network import Node
from nodes import NodeComponents
from runtimes import Runtimes

_GATEWAY = Path(__file__).resolve().parent / "gateway.py"
MAX_NODES = 8


@dataclass(frozen=True)
class Options:
    """What a cluster with real nodes has beside its nodes."""

    nodes: int
    accelerators: int = 0
    """`nvidia.com/gpu` that each node claims to have."""
    network_policies: bool = False
    monitoring: bool = False
    kueue: bool = False
    archives: tuple[Path, ...] = ()
    """Of images that every node has from the start, as `docker save` writes them."""

    @property
    def groups(self) -> list[str]:
        """Groups of programs that it needs beside the control plane's."""
        monitoring = ("monitoring", "prometheus-operator") if self.monitoring else ()
        return ["node", *monitoring, *(("kueue",) if self.kueue else ())]


def check(options: Options) -> None:
    """Before anything is started, looks for all that it takes.

    Raises:
        FileNotFoundError: programs have not been built, or an archive is missing.
        RuntimeError: not root, or the machine lacks packages.
    """
    for group in options.groups:
        build.programs(group)
    for archive in options.archives:
        if not archive.is_file():
            raise FileNotFoundError(f"no image archive at {archive}")
    requirements.ensure()


def members(count: int) -> list[Node]:
    return [Node(index) for index in range(count)]


def start(launch: Launch, options: Options) -> None:
    """Starts everything and returns once nodes, DNS, Services and add-ons are ready.

    Raises:
        RuntimeError: a component ended, or something was refused.
        TimeoutError: a component was not ready at the deadline.
    """
    ours = members(options.nodes)
    ports = launch.components.ports
    (launch.state / "nodes").mkdir()
    inside = _namespaces(launch, ours)
    launch.start(_gateway(inside, ports))
    launch = replace(launch, inside=inside.enter)
    parts = NodeComponents(build.programs("node"), ports, launch.components.keys, launch.state)
    store = ImageStore(build.cache() / "images")
    if options.archives:
        store.add(options.archives, inside)
    for node in ours:
        if options.archives:
            store.clone(nodes.directory(launch.state, node) / "containerd")
        cgroups.create(nodes.cgroup(launch.state, node))
        launch.start(parts.containerd(node))
    api, started = launch.control_plane()
    kubectl = Kubectl(launch.components.keys.kubeconfig(credentials.ADMIN))
    runtimes = Runtimes(inside, ours)
    for node in ours:
        launch.wait_for(f"containerd of {node.name}", partial(runtimes.answers, node))
    for image in (container_images.pause(), container_images.toolbox()):
        runtimes.load_made(image, launch.state)
    started += [launch.start(parts.kubelet(node)) for node in ours]
    kubectl.apply(manifest("node-rights.yaml", dns=credentials.DNS, proxy=credentials.PROXY))
    started += [launch.start(parts.kube_proxy()), launch.start(parts.dns()), launch.kuberay(api)]
    for component in started:
        launch.wait_for_health(component)
    for node in ours:
        launch.wait_for(f"{node.name}", partial(api.answers, f"/api/v1/nodes/{node.name}"))
        if options.accelerators:
            kubectl.claim_accelerators(node.name, options.accelerators)
    kubectl.wait("node --all", "condition=Ready", launch.seconds_left())
    launch.wait_for_default_account(api)
    addons = Addons(launch, kubectl, runtimes, inside)
    addons.volumes()
    if options.network_policies:
        addons.network_policies()
    if options.monitoring:
        addons.monitoring()
    if options.kueue:
        addons.kueue()


def remove(state: Path) -> None:
    """Removes what a cluster with real nodes, whose processes have ended, left behind."""
    for place in sorted((state / "nodes").glob("node-*")):
        cgroups.remove(nodes.cgroup(state, Node(int(place.name.removeprefix("node-")))))
    for directory in (state / "nodes", state / "volumes"):
        if directory.exists():
            shutil.rmtree(directory)


def load(state: Path, inside: Namespaces, archives: Sequence[Path]) -> None:
    """Imports images into every node of a running cluster."""
    count = len(list((state / "nodes").glob("node-*")))
    runtimes = Runtimes(inside, members(count))
    for archive in archives:
        runtimes.load(archive)


def _namespaces(launch: Launch, ours: Sequence[Node]) -> Namespaces:
    """New namespaces with the nodes' bridges."""
    log = launch.logs / f"{namespaces.NAME}.log"
    inside = namespaces.create(
        launch.record, launch.state, log, die_with_parent=launch.die_with_parent
    )
    launch.wait_for("the namespaces", lambda: inside.init() is not None)
    init = inside.init()
    assert init is not None
    launch.record.add(namespaces.INIT, init)
    inside.prepare(network.commands(ours))
    return inside


def _gateway(inside: Namespaces, ports: Ports) -> Component:
    carried = (
        *(ports.api_server, ports.controller_manager, ports.scheduler, ports.kuberay),
        *(ports.proxy, ports.dns, ports.monitoring, *ports.kubelets),
    )
    argv = [sys.executable, str(_GATEWAY), str(inside.network), *map(str, carried)]
    return Component("gateway", argv)
