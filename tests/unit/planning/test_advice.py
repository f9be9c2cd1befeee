"""What does not fit into an accelerator, and the fields that make it fit."""

from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.planning import advice, forecast
from grpo_trainer.spec import GRPOJobSpec

GIB = 1 << 30


def spec(**sections) -> GRPOJobSpec:
    return GRPOJobSpec.model_validate(sections)


SHARDED = {"consumers": {"processesPerReplica": 8, "zeroStage": 2}, "batch": {"trainBatchSize": 8}}


def test_the_default_manifest_does_not_fit_80_gib_and_says_what_would(qwen_7b):
    (fault,) = advice(spec(), qwen_7b, 80 * GIB)
    assert str(fault) == (
        "spec.consumers.zeroStage: Invalid value: 0: a consumer needs 158.0 GiB of an accelerator "
        "with 80.0 GiB; 2 and spec.consumers.processesPerReplica 4 would "
        "need 62.3 GiB"
    )


def test_eight_ranks_with_zero_2_fit_80_gib(qwen_7b):
    assert advice(spec(**SHARDED), qwen_7b, 80 * GIB) == []


def test_a_producer_that_does_not_fit_gets_a_smaller_batch(qwen_7b):
    faults = [str(fault) for fault in advice(spec(**SHARDED), qwen_7b, 24 * GIB)]
    assert faults[1] == (
        "spec.batch.inferenceMicrobatchSize: Invalid value: 8: a producer needs 30.2 GiB of an "
        "accelerator with 24.0 GiB; 4 would need 23.2 GiB"
    )


def test_pools_without_accelerators_have_no_limit(qwen_7b):
    pools = {"consumers": {"accelerator": "cpu"}, "producers": {"accelerator": "cpu"}}
    assert advice(spec(**pools), qwen_7b, GIB) == []


def test_a_model_that_never_fits_is_reported_as_such(qwen_7b):
    faults = [str(fault) for fault in advice(spec(**SHARDED), qwen_7b, 8 * GIB)]
    assert "which is still too much" in faults[0]


@given(
    limit=st.integers(8, 200),
    stage=st.integers(0, 2),
    microbatch=st.integers(1, 8),
    processes=st.sampled_from([1, 2, 4, 8]),
)
def test_there_is_advice_exactly_when_something_does_not_fit(
    qwen_7b, limit, stage, microbatch, processes
):
    tried = spec(
        consumers={"zeroStage": stage, "processesPerReplica": processes},
        batch={"trainMicrobatchSize": microbatch},
    )
    found = forecast(tried, qwen_7b)
    too_big = [found.consumer.peak > limit * GIB, found.producer.peak > limit * GIB]
    assert len(advice(tried, qwen_7b, limit * GIB)) == sum(too_big)


def test_a_limit_of_tokens_is_lowered_down_to_the_longest_sample(qwen_7b):
    tokens = {**SHARDED, "batch": {"trainMicrobatchTokens": 4 * 4096}}
    first, *_ = advice(spec(**tokens), qwen_7b, 52 * GIB)
    assert str(first) == (
        "spec.batch.trainMicrobatchTokens: Invalid value: 16384: a consumer needs 52.8 GiB of an "
        "accelerator with 52.0 GiB; 8192 would need 49.4 GiB"
    )


def test_more_ranks_never_need_more_memory_per_rank(qwen_7b):
    peaks = [
        forecast(spec(consumers={"zeroStage": 2, "processesPerReplica": n}), qwen_7b).consumer.peak
        for n in (1, 2, 4, 8)
    ]
    assert peaks == sorted(peaks, reverse=True)
