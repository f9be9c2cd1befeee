"""The installed chart passes its own test."""

from e2e.deployment import RELEASE, RELEASE_NAMESPACE, Deployment


def test_helm_test_succeeds(release: Deployment) -> None:
    printed = release.run_helm("test", RELEASE, "--timeout=120s")

    assert "Phase:          Succeeded" in printed


def test_the_account_of_the_test_is_deleted_after_it(release: Deployment) -> None:
    accounts = release.kubectl("get", "serviceaccounts", "-n", RELEASE_NAMESPACE, "-o", "name")

    assert not [name for name in accounts.split() if name.endswith("-test")]
