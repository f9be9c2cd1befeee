"""Objects now and after each change: list, then watch, then list again.

The operator's watches are kopf's, which the plugin does not need.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp

from grpo_operator.clients.kube import Kube, Object
from grpo_operator.model.resources import Resource

WATCH_SECONDS = 300
"""The API server ends a watch after this time."""
_SLACK_SECONDS = 30
_ERROR = "ERROR"


async def follow(
    kube: Kube, resource: Resource, namespace: str | None, name: str = ""
) -> AsyncGenerator[list[Object], None]:
    """All objects of a kind, or the one of a name, now and after each change.

    Raises ApiError.
    """
    selector = f"metadata.name={name}" if name else ""
    while True:
        listed = await kube.list(resource, namespace, field_selector=selector)
        objects = {item["metadata"]["uid"]: item for item in listed["items"]}
        yield list(objects.values())
        version = listed["metadata"]["resourceVersion"]
        async with aclosing(_events(kube, resource, namespace, selector, version)) as events:
            async for event in events:
                if event["type"] == _ERROR:  # the version is too old: list again
                    break
                item = event["object"]
                if event["type"] == "DELETED":
                    objects.pop(item["metadata"]["uid"], None)
                else:
                    objects[item["metadata"]["uid"]] = item
                yield list(objects.values())


async def _events(
    kube: Kube, resource: Resource, namespace: str | None, selector: str, version: str
) -> AsyncGenerator[Object, None]:
    query = {
        "resourceVersion": version,
        "watch": "true",
        "timeoutSeconds": str(WATCH_SECONDS),
        **({"fieldSelector": selector} if selector else {}),
    }
    idle = WATCH_SECONDS + _SLACK_SECONDS
    async with kube.stream("watch", resource, namespace, query=query, idle_seconds=idle) as lines:
        try:
            async for line in lines:
                yield json.loads(line)
        except aiohttp.ClientError:
            return  # the connection broke: the next list shows whether for good
