"""Whole runs in virtual time, over every size and every trouble.

Aspects: each prompt ends once, staleness and capacity are kept, no run hangs, nothing usable is
thrown away, and on-policy runs depend on the seed alone.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.pipeline.simulation import Scenario, Simulation
from unit.pipeline.virtual_time import run

EXAMPLES = 100
RATES = st.sampled_from([0.0, 0.1, 0.5])
SCENARIOS = st.builds(
    Scenario,
    timing=st.integers(0, 2**32),
    producers=st.integers(1, 4),
    count=st.integers(1, 20),
    episodes=st.integers(1, 2),
    groups_per_step=st.integers(1, 5),
    capacity=st.sampled_from([0, 1, 2, 50]),
    max_staleness=st.sampled_from([0, 1, 2, 50]),
    max_attempts=st.integers(1, 3),
    max_lease_attempts=st.integers(1, 5),
    filter_rate=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    failure_rate=RATES,
    death_rate=RATES,
    slow_rate=RATES,
    rollbacks=st.integers(0, 3),
    prefetch=st.booleans(),
)


def simulate(scenario: Scenario) -> Simulation:
    simulation = Simulation(scenario)
    run(simulation.run())
    return simulation


def trained(simulation: Simulation) -> list[int]:
    return [serial for step in simulation.steps for serial in step.batch.serials]


@settings(deadline=None, max_examples=EXAMPLES)
@given(SCENARIOS)
def test_every_prompt_is_trained_filtered_or_dropped_exactly_once(scenario: Scenario):
    simulation = simulate(scenario)

    counts, total = simulation.buffer.counts, scenario.count * scenario.episodes
    assert counts.trained + counts.filtered + counts.dropped == total
    assert len(set(trained(simulation))) == len(trained(simulation)) == counts.trained
    assert (simulation.buffer.running, simulation.buffer.depth) == (0, 0)
    state = simulation.buffer.state_dict()
    assert (state["done_below"], state["done_beyond"]) == (total, [])


@settings(deadline=None, max_examples=EXAMPLES)
@given(SCENARIOS)
def test_a_group_that_was_fresh_when_it_completed_is_always_trained(scenario: Scenario):
    simulation = simulate(scenario)

    assert simulation.usable == set(trained(simulation))


@settings(deadline=None, max_examples=EXAMPLES)
@given(SCENARIOS, st.integers(1, 6))
def test_a_run_ends_after_its_steps_or_its_data(scenario: Scenario, max_steps: int):
    simulation = simulate(replace(scenario, max_steps=max_steps))

    counts, total = simulation.buffer.counts, scenario.count * scenario.episodes
    ended = counts.trained + counts.filtered + counts.dropped == total
    assert len(simulation.steps) == max_steps or (ended and len(simulation.steps) < max_steps)
    assert len(set(trained(simulation))) == len(trained(simulation)) == counts.trained


@settings(deadline=None, max_examples=EXAMPLES)
@given(SCENARIOS)
def test_without_failures_only_the_last_batch_is_smaller(scenario: Scenario):
    quiet = replace(scenario, filter_rate=0.0, failure_rate=0.0, death_rate=0.0, slow_rate=0.0)

    sizes = [len(step.batch.groups) for step in simulate(quiet).steps]

    assert set(sizes[:-1]) <= {scenario.groups_per_step}
    assert sum(sizes) == scenario.count * scenario.episodes


@settings(deadline=None, max_examples=EXAMPLES)
@given(SCENARIOS, st.integers(0, 2**32), st.integers(1, 4))
def test_on_policy_the_batches_depend_on_the_seed_alone(
    scenario: Scenario, timing: int, producers: int
):
    """Neither timing, nor the number of producers, nor deaths, nor resumes change them."""
    troubled = replace(scenario, max_staleness=0, slow_rate=0.0, max_lease_attempts=1000)
    quiet = Scenario(
        timing=timing,
        producers=producers,
        count=scenario.count,
        episodes=scenario.episodes,
        groups_per_step=scenario.groups_per_step,
        max_staleness=0,
        max_attempts=scenario.max_attempts,
        filter_rate=scenario.filter_rate,
    )

    batches, expected = (
        [(step.batch.serials, step.batch.filtered) for step in simulate(each).steps]
        for each in (troubled, quiet)
    )

    assert [serials for serials, _ in batches] == [serials for serials, _ in expected]
    assert [set(filtered) for _, filtered in batches] == [set(filtered) for _, filtered in expected]
