"""The few requests to the cluster's HTTP endpoints that bringing it up needs."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 30.0
_AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class ApiServer:
    url: str
    certificate: Path
    token: str

    def create(self, collection: str, manifest: str) -> None:
        """Creates the object of a YAML `manifest` in `collection`, the path of its kind.

        Raises:
            RuntimeError: the API server refused it; the message holds its answer.
        """
        request = self._request(collection)
        request.add_header("Content-Type", "application/yaml")
        try:
            self._open(request, manifest.encode()).close()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"POST {collection}: {error.code} {error.read()!r}") from error

    def answers(self, path: str) -> bool:
        """Whether a GET of `path` succeeds."""
        try:
            self._open(self._request(path)).close()
        except OSError:  # refused, reset, timed out, or any status but a success
            return False
        return True

    def discoverable(self, group: str) -> set[str]:
        """The resources of an API group by discovery, which lags behind the API itself."""
        request = self._request("/apis")
        request.add_header("Accept", _AGGREGATED_DISCOVERY)
        with self._open(request) as response:
            groups = json.load(response)["items"]
        return {
            resource["resource"]
            for item in groups
            if item["metadata"]["name"] == group
            for version in item["versions"]
            for resource in version["resources"]
        }

    def _request(self, path: str) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self.token}"}
        return urllib.request.Request(self.url + path, headers=headers)

    def _open(self, request: urllib.request.Request, body: bytes | None = None) -> Any:
        context = ssl.create_default_context(cafile=self.certificate)
        return urllib.request.urlopen(request, body, timeout=_TIMEOUT_SECONDS, context=context)


def is_healthy(url: str) -> bool:
    """Whether the health endpoint of a component on loopback answers with success."""
    # Controller manager and scheduler serve it with a certificate that they made up themselves.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS, context=context).close()
    except OSError:
        return False
    return True
