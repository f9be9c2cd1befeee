"""The preStop hook of head and consumers: ask the driver for a checkpoint and wait for its exit.

Without the consumers there is no step under way, so each of them waits too. Standard library only.
The pod's grace period is longer than the wait.
"""

import os
import time
import urllib.error
import urllib.request
from pathlib import Path

POLL_SECONDS = 0.5
SECONDS = float(os.environ.get("GRPO_DRAIN_SECONDS", "300"))
# The driver is in this pod or in the head's: a proxy of the environment would receive the token.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def driver_url() -> str | None:
    """The URL of the running driver, which it writes to the volume; None when none runs.

    Not by the name of its Service, which is deleted together with the pods.
    """
    try:
        return (Path(os.environ["GRPO_RUN_DIR"]) / "endpoint").read_text().strip()
    except OSError:
        return None


def responds(url: str, method: str) -> bool:
    """Whether the driver of this job responds. Another job's would refuse the token."""
    headers = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with DIRECT.open(request, timeout=10):
            return True
    except OSError:
        return False


def main() -> None:
    url = driver_url()
    deadline = time.monotonic() + SECONDS
    # Not /progress: once its end is read the driver exits, and the operator has to read it.
    if url and responds(f"{url}/drain", "POST"):
        while time.monotonic() < deadline and responds(f"{url}/healthz", "GET"):
            time.sleep(POLL_SECONDS)


main()
