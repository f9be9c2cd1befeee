"""The tables of `list` and `top`: columns, units, absent values, and the order of rows."""

from argparse import ArgumentTypeError
from dataclasses import replace

import pytest

from grpo_kubectl import listing, text
from grpo_trainer.spec import CheckpointStatus, MetricsStatus, Phase, ProgressStatus, WorkersStatus
from support.observations import NOW, job, running

METRICS = MetricsStatus(
    reward=4.5219,
    accuracy=0.452,
    samples_per_second=405.1,
    tokens_per_second=12431.2,
    buffer_depth=3,
    buffer_capacity=64,
    staleness=0.4,
    consumer_idle_ratio=0.214,
)
BUSY = running(
    progress=ProgressStatus(step=12, total_steps=150, percent=8, eta_seconds=94),
    metrics=METRICS,
    workers=WorkersStatus(
        producers_ready=1, producers_desired=2, consumers_ready=1, consumers_desired=1
    ),
    checkpoint=CheckpointStatus(step=10, path="/data/x", time=NOW),
)


def rows(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_a_job_is_a_row_of_short_numbers():
    header, row = rows(listing.render([job(BUSY)], listing.NARROW, NOW, namespaces=False))
    assert header == [column.title for column in listing.NARROW]
    assert row == ["math", "Running", "12/150", "4.522", "0.452", "405.1", "94s", "1", "60m"]


def test_the_wide_table_has_load_workers_and_cluster():
    header, row = rows(listing.render([job(BUSY)], listing.WIDE, NOW, namespaces=False))
    cells = dict(zip(header, row, strict=True))
    assert cells["BUFFER"] == "3/64"
    assert cells["IDLE"] == "21%"
    assert (cells["PRODUCERS"], cells["CONSUMERS"]) == ("1/2", "1/1")
    assert (cells["CHECKPOINT"], cells["CLUSTER"]) == ("10", "-")


def test_the_live_table_has_tokens_per_second():
    header, row = rows(listing.render([job(BUSY)], listing.LIVE, NOW, namespaces=False))
    assert dict(zip(header, row, strict=True))["TOKENS/S"] == "12431"


def test_what_is_not_known_yet_is_a_dash():
    _, row = rows(listing.render([job()], listing.NARROW, NOW, namespaces=False))
    assert row == ["math", str(Phase.PENDING), "0/?", "-", "-", "-", "-", "0", "60m"]


def test_jobs_of_all_namespaces_are_sorted_and_name_theirs():
    jobs = [replace(job(), namespace=space, name=name) for space, name in ("ba", "ab", "aa")]
    found = rows(listing.render(jobs, listing.NARROW, NOW, namespaces=True))
    assert [row[:2] for row in found] == [["NAMESPACE", "NAME"], ["a", "a"], ["a", "b"], ["b", "a"]]


def test_columns_are_as_wide_as_their_widest_cell():
    assert text.table(("A", "B"), [("long", "1"), ("", "two\nlines")]) == [
        "A      B",
        "long   1",
        "-      two; lines",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200000, "2d")],
)
def test_an_age_has_one_unit(seconds, shown):
    assert text.age(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3 TiB")]
)
def test_a_size_has_the_unit_that_keeps_it_short(count, shown):
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800)]
)
def test_a_duration_has_units_as_kubectl_has_them(given, seconds):
    assert text.duration(given) == seconds


@pytest.mark.parametrize("given", ["", "m", "-5s", "1.5h", "5 m"])
def test_an_invalid_duration_is_refused_with_valid_examples(given):
    with pytest.raises(ArgumentTypeError, match="1h30m"):
        text.duration(given)
