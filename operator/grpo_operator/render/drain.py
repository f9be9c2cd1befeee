"""The preStop hook of the head's container: ask the driver for a checkpoint and wait until it has
exited.

Standard library only. The pod's grace period bounds the wait.
"""

import os
import time
import urllib.error
import urllib.request

URL = os.environ.get("GRPO_DRIVER_URL", "http://127.0.0.1:9464")
POLL_SECONDS = 0.5
# The driver is in this container: a proxy of the environment would receive the token.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def responds(path: str, method: str) -> bool:
    """Whether a driver responds to a call."""
    headers = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
    request = urllib.request.Request(f"{URL}{path}", method=method, headers=headers)
    try:
        with DIRECT.open(request, timeout=10):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


if responds("/drain", "POST"):
    while responds("/progress", "GET"):
        time.sleep(POLL_SECONDS)
