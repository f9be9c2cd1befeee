"""What is built, in groups that do not depend on each other: a group is rebuilt when its own
programs, files or pins change, and only then."""

from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent / "tools"

_KUBE_STAMP = (
    "k8s.io/component-base/version.gitVersion=v{version}",
    "k8s.io/component-base/version.gitMajor=1",
    "k8s.io/component-base/version.gitMinor={minor}",
)
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_MONITORING = "github.com/prometheus-operator/prometheus-operator"
_PROMETHEUS = "github.com/prometheus/prometheus"
_KUEUE = "sigs.k8s.io/kueue"


@dataclass(frozen=True)
class Program:
    """One binary."""

    name: str
    tool: str
    """The directory of `tools/` that pins its version."""
    package: str
    links: tuple[str, ...] = ()
    """Names that the binary is also called by, each of which makes it another program."""
    tags: str = ""
    stamp: tuple[str, ...] = ()
    """Variables set by the linker; {version} and {minor} are those of k8s.io/kubernetes."""


@dataclass(frozen=True)
class Released:
    """Files of a module's own release, copied into `manifests/`."""

    tool: str
    module: str
    files: tuple[str, ...]
    """Globs below the module's root."""


@dataclass(frozen=True)
class Kustomized:
    """A kustomization of a module's own release, rendered into the file `manifests/<name>`."""

    name: str
    tool: str
    module: str
    directory: str


@dataclass(frozen=True)
class Group:
    programs: tuple[Program, ...]
    released: tuple[Released, ...] = ()
    kustomized: tuple[Kustomized, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(sorted({program.tool for program in self.programs}))


GROUPS = {
    "control": Group(
        (
            Program(
                "kube",
                "kube",
                ".",
                links=("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
                stamp=_KUBE_STAMP,
            ),
            Program("etcd", "kube", "go.etcd.io/etcd/server/v3"),
            Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
            Program("kuberay-operator", "kuberay", _KUBERAY),
        ),
        released=(
            Released(
                "kuberay",
                _KUBERAY,
                ("config/crd/bases/ray.io_rayclusters.yaml", "config/rbac/role.yaml"),
            ),
        ),
    ),
    "node": Group(
        (
            Program("node", "node", ".", links=("kubelet", "kube-proxy"), stamp=_KUBE_STAMP),
            Program("coredns", "coredns", "."),
            Program(
                "local-path-provisioner",
                "local-path",
                "github.com/rancher/local-path-provisioner",
            ),
            Program(
                "kube-network-policies",
                "network-policies",
                "sigs.k8s.io/kube-network-policies/cmd",
            ),
        )
    ),
    "helm": Group((Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),)),
    "monitoring": Group(
        tuple(
            # Of Prometheus' service discoveries only that of Kubernetes.
            Program(
                name,
                "prometheus",
                f"{_PROMETHEUS}/cmd/{name}",
                tags="remove_all_sd,enable_kubernetes_sd",
                stamp=("github.com/prometheus/common/version.Version=3.16.0",),
            )
            for name in ("promtool", "prometheus")
        )
    ),
    "prometheus-operator": Group(
        (
            Program("prometheus-operator", "prometheus-operator", f"{_MONITORING}/cmd/operator"),
            Program(
                "prometheus-config-reloader",
                "prometheus-operator",
                f"{_MONITORING}/cmd/prometheus-config-reloader",
            ),
        ),
        released=(
            Released(
                "prometheus-operator", _MONITORING, ("example/prometheus-operator-crd/*.yaml",)
            ),
        ),
    ),
    "kueue": Group(
        (Program("kueue", "kueue", f"{_KUEUE}/cmd/kueue"),),
        kustomized=(Kustomized("kueue.yaml", "kueue", _KUEUE, "config/default"),),
    ),
}
DEFAULT_GROUP = "control"
