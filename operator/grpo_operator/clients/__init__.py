"""Clients of the Kubernetes API and of Ray.

`errors`, `kube` and `connection` are shared with the kubectl plugin, so they import neither kopf
nor prometheus_client: calls are counted by a `CallObserver`.
"""
