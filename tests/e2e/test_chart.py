"""The installed chart passes its own test."""

from e2e.deployment import RELEASE, Deployment


def test_helm_test_succeeds(release: Deployment) -> None:
    printed = release.run_helm("test", RELEASE, "--logs", "--timeout=120s")

    assert "Phase:          Succeeded" in printed
