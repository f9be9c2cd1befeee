"""Deltas of weights: exact, small, checked; producers that drop versions, restart and are rolled
back hold the consumers' bytes."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer import weight_delta
from grpo_trainer.consumer.records import DeltaReference
from grpo_trainer.driver.weight_deltas import DeltaChain
from grpo_trainer.weight_delta import (
    FULL_INTERVAL,
    MAX_DISTANCE,
    DeltaEncoder,
    WeightMirror,
    WeightsDifferError,
    apply,
    checksum,
    difference,
)
from grpo_trainer.weights import WeightBundle, buffer_bytes, layout

ELEMENTS = 3000
ENTRIES = layout([("a", "bfloat16", (ELEMENTS,), 2 * ELEMENTS), ("b", "float32", (5,), 20)])
SIZE = buffer_bytes(ENTRIES)


def bundle(version, data):
    return WeightBundle(version, ENTRIES, data)


def changed(data, positions):
    found = data.copy()
    found.view(np.uint16)[positions] ^= 0x55
    return found


def random_bytes(seed=0):
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


@settings(deadline=None)
@given(st.sets(st.integers(0, SIZE // 2 - 1)), st.integers(1, 2000))
def test_a_delta_turns_one_version_into_the_other_bit_for_bit(positions, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_delta, "BLOCK_WORDS", block)
        old = random_bytes()
        new = changed(old, sorted(positions))
        delta = difference(bundle(1, old), bundle(2, new))
        apply(delta, old)
        assert np.array_equal(old, new)
        assert checksum(old) == delta.checksum
        most = len(positions) + SIZE // 2 // MAX_DISTANCE
        assert len(delta.words) <= most


@settings(deadline=None)
@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_the_checksum_shows_every_changed_byte(position, mask):
    data = random_bytes()
    expected = checksum(data)
    data[position] ^= mask
    assert checksum(data) != expected


def test_one_percent_of_changes_takes_little_over_one_percent_of_the_bytes():
    size = 2**20
    entries = layout([("a", "bfloat16", (size // 2,), size)])
    random = np.random.default_rng(0)
    old = random.integers(0, 256, size, dtype=np.uint8)
    new = old.copy()
    positions = random.choice(size // 2, size // 200, replace=False)
    new.view(np.uint16)[positions] ^= 1
    delta = difference(WeightBundle(0, entries, old), WeightBundle(1, entries, new))
    assert delta.size / size < 0.02


def test_the_first_every_nth_and_dense_versions_are_sent_in_full():
    encoder, data = DeltaEncoder(), random_bytes()
    assert encoder.encode(bundle(1, data)) is None
    assert encoder.encode(bundle(2, changed(data, [7]))) is not None
    assert encoder.encode(bundle(3, random_bytes(1))) is None
    after = encoder.encode(bundle(4, changed(random_bytes(1), [7, 9])))
    assert (after.base, len(after.counts)) == (3, 1)
    assert encoder.encode(bundle(FULL_INTERVAL, changed(random_bytes(1), [7, 9]))) is None


@pytest.mark.parametrize("fault", ["base", "words", "copy"])
def test_a_mirror_refuses_what_does_not_lead_to_the_published_version(fault):
    old = random_bytes()
    delta = difference(bundle(1, old), bundle(2, changed(old, [1, 2, 3])))
    mirror = WeightMirror()
    [held] = mirror.update([bundle(1, old)])
    if fault == "base":
        delta = replace(delta, base=0)
    elif fault == "words":
        delta = replace(delta, words=delta.words ^ 1)
    else:
        held.data[17] ^= 1
    with pytest.raises(WeightsDifferError, match="version 2"):
        mirror.update([delta])
    with pytest.raises(WeightsDifferError, match="holds no version"):
        mirror.update([delta])
    [repaired] = mirror.update([bundle(2, changed(old, [1, 2, 3]))])
    assert np.array_equal(repaired.data, changed(old, [1, 2, 3]))


class Producer:
    """A mirror and the version that the driver believes it has."""

    def __init__(self):
        self.mirror, self.version, self.held = WeightMirror(), -1, None

    def load(self, parts, version):
        [self.held] = self.mirror.update(parts)
        self.version = version


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_after_200_versions_with_drops_restarts_and_roll_backs_all_bytes_are_equal(seed):
    random = Random(seed)
    encoder, chain, data = DeltaEncoder(), DeltaChain(), random_bytes()
    producers = [Producer() for _ in range(3)]
    version, deltas = 0, 0
    for _ in range(200):
        event = random.random()
        if event < 0.02:
            # The consumers restart from a checkpoint: the same numbers are other weights.
            encoder, data = DeltaEncoder(), random_bytes(random.randrange(100))
            version = max(0, version - random.randrange(5))
            chain.clear()
            for producer in producers:
                producer.version = -1
        count = random.choice([0, 1, 20, 20, 20, SIZE // 2])
        data = changed(data, random.sample(range(SIZE // 2), count))
        version += 1
        delta = encoder.encode(bundle(version, data.copy()))
        chain.add(version, delta and [DeltaReference(delta.base, delta.size, SIZE, delta)])
        for index in range(len(producers)):
            if random.random() < 0.05:
                producers[index] = Producer()
            producer = producers[index]
            if random.random() < 0.3:
                continue  # busy: it skips this version
            found = chain.between(producer.version, version)
            deltas += bool(found)
            producer.load(found or [bundle(version, data)], version)
            assert np.array_equal(producer.held.data, data)
            assert producer.held.version == version
    assert deltas > 50
