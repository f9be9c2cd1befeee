"""Asynchronous tests of the pipeline run in virtual time."""

from unit.pipeline.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    return {"virtual-time": VirtualTimeLoop}
