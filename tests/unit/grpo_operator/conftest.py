"""A reconciler with a fake API server and heads that are real HTTP."""

import pytest

from grpo_operator.controller.cache import Cache
from support.reconciliation import ApiServer, Heads, add_submitted, reconciler_of


@pytest.fixture
async def api():
    return ApiServer(Cache())


@pytest.fixture
async def heads():
    return Heads()


@pytest.fixture
async def reconciler(api, heads):
    async with reconciler_of(api, heads) as reconciler:
        yield reconciler


@pytest.fixture
async def submitted(api):
    """A job whose driver has just been started."""
    add_submitted(api, "math")
