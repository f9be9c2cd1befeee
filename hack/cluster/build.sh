#!/usr/bin/env bash
# build.sh DIR: builds the test cluster's programs, at the versions pinned in tools/*/go.mod, into DIR.
set -euo pipefail

out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/tools"
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false ${GOFLAGS:-}"

build() { # TOOL PROGRAM PACKAGE [LDFLAG...]
    local tool=$1 program=$2 package=$3
    shift 3
    echo "building $program"
    go -C "$tool" build -ldflags "-s -w $*" -o "$out/$program" "$package"
}
version() { go -C "$1" list -m -f '{{.Version}}' "$2"; }
source_of() { go -C "$1" list -m -f '{{.Dir}}' "$2"; }

kubernetes=$(version kube k8s.io/kubernetes)
minor=${kubernetes#v1.}
stamp=k8s.io/component-base/version
build kube kube . -X $stamp.gitVersion="$kubernetes" -X $stamp.gitMajor=1 -X $stamp.gitMinor="${minor%%.*}"
for component in kube-apiserver kube-controller-manager kube-scheduler; do
    ln -sf kube "$out/$component"
done
build kube etcd go.etcd.io/etcd/server/v3
build kwok kwok sigs.k8s.io/kwok/cmd/kwok

kuberay=github.com/ray-project/kuberay/ray-operator
build kuberay kuberay-operator $kuberay
mkdir -p "$out/manifests"
install -m 644 "$(source_of kuberay $kuberay)"/config/{crd/bases/ray.io_rayclusters.yaml,rbac/role.yaml} \
    "$out/manifests"
