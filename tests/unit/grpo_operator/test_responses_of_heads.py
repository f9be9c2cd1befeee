"""What the observer records of a head's responses: the time at a step, and of a silence."""

import pytest

from support.observations import at
from support.reconciliation import KEY


class Clock:
    """Observes the job's head at a time."""

    def __init__(self, api, heads, reconciler):
        self.api, self.heads, self.reconciler = api, heads, reconciler

    async def observe(self, seconds, step=None, *, ray=True):
        """The head reports `step`; None is a driver that does not respond."""
        self.heads.step, self.heads.ray = step, ray
        job = self.api.cache.job(KEY)
        return await self.reconciler.observer.observe_cached(job, at(seconds))


@pytest.fixture
async def clock(api, heads, reconciler, submitted):
    return Clock(api, heads, reconciler)


async def test_the_time_at_a_step_counts_from_its_first_response(clock):
    assert (await clock.observe(0, step=3)).step_since == at(0)
    assert (await clock.observe(40, step=3)).step_since == at(0)
    assert (await clock.observe(50, step=4)).step_since == at(50)


async def test_the_time_of_a_silence_is_no_time_at_a_step(clock):
    await clock.observe(0, step=3)
    silent = await clock.observe(5000, ray=False)
    assert (silent.step_since, silent.silent_since) == (None, at(0))
    assert (await clock.observe(5001, step=3)).step_since == at(5001)


async def test_a_driver_that_has_not_responded_yet_is_not_silent_while_ray_responds(clock):
    assert (await clock.observe(0)).silent_since is None
    assert (await clock.observe(5000)).silent_since is None


async def test_a_driver_that_stops_responding_is_silent_though_ray_responds(clock):
    await clock.observe(0, step=3)
    observed = await clock.observe(100)
    assert observed.silent_since == at(0)
    assert observed.ray_jobs
