"""Who may reach a job's pods beside the job's own, from the operator's environment."""

import json
from dataclasses import dataclass
from typing import Any

Peer = dict[str, Any]
"""A NetworkPolicyPeer."""

_PEER_FIELDS = {"ipBlock", "namespaceSelector", "podSelector"}
_LEGAL = 'JSON {"operator": [PEER, ...], "monitoring": [PEER, ...]} of NetworkPolicyPeers'


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """The peers that a job's NetworkPolicy lets in."""

    operator: tuple[Peer, ...]
    """They reach Ray's dashboard and the driver."""
    monitoring: tuple[Peer, ...]
    """They reach the metrics of the driver and of Ray."""

    @classmethod
    def parse(cls, name: str, text: str) -> "NetworkAccess | None":
        """The value of the variable `name`; None when it is empty: no policies are made then.

        Raises ValueError that names the variable, its value and what is legal.
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
            raise ValueError(f"{name}: {text!r} is not legal: {_LEGAL}")
        return cls(*(tuple(found[key]) for key in keys))


def _are_peers(value: Any) -> bool:
    """The API server would refuse an empty peer, but only once a job starts."""
    return isinstance(value, list) and all(
        isinstance(peer, dict) and peer and peer.keys() <= _PEER_FIELDS for peer in value
    )
