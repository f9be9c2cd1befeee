"""The peers that may connect to a job's pods, from the operator's environment."""

import json
from dataclasses import dataclass
from typing import Any

Peer = dict[str, Any]
"""A NetworkPolicyPeer."""

_PEER_FIELDS = {"ipBlock", "namespaceSelector", "podSelector"}
_EXPECTED = 'JSON {"operator": [PEER, ...], "monitoring": [PEER, ...]} of NetworkPolicyPeers'


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """The peers that a job's NetworkPolicy allows, beside the job's own pods."""

    operator: tuple[Peer, ...]
    """They may connect to Ray's dashboard and the driver."""
    monitoring: tuple[Peer, ...]
    """They may read the metrics of the driver and of Ray."""

    @classmethod
    def parse(cls, name: str, text: str) -> "NetworkAccess | None":
        """The value of the variable `name`; None when it is empty: then no policies are created.

        Raises ValueError that names the variable and its value.
        """
        if not text:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        keys = ("operator", "monitoring")
        complete = isinstance(found, dict) and found.keys() == set(keys)
        if not complete or not all(_are_peers(found[key]) for key in keys):
            raise ValueError(f"{name}: Invalid value: {text!r}: must be {_EXPECTED}")
        return cls(*(tuple(found[key]) for key in keys))


def _are_peers(value: Any) -> bool:
    """The API server rejects an empty peer, but only once a job starts."""
    return isinstance(value, list) and all(
        isinstance(peer, dict) and peer and peer.keys() <= _PEER_FIELDS for peer in value
    )
