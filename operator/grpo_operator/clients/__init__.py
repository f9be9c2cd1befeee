"""Clients of the Kubernetes API and of Ray."""
