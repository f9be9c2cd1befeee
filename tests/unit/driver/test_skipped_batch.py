"""The batch of a skipped step can be read again."""

from dataclasses import asdict

import numpy as np

from grpo_trainer.algorithm.batching import build_step
from grpo_trainer.driver.skipped_batch import write_skipped_batch
from grpo_trainer.spec import GRPOJob, resolve_algorithm
from support.models import random_group


def test_every_micro_batch_of_every_rank_is_in_the_file(tmp_path):
    rng = np.random.default_rng(0)
    batch = build_step(
        [random_group(rng) for _ in range(4)],
        data_parallel=2,
        microbatch=3,
        algorithm=resolve_algorithm(GRPOJob().spec),
        pad_token_id=0,
    )
    with np.load(write_skipped_batch(tmp_path, 7, batch)) as found:
        assert found["step"] == 7
        for rank, shard in enumerate(batch.shards):
            for index, micro_batch in enumerate(shard):
                for name, array in asdict(micro_batch).items():
                    np.testing.assert_array_equal(
                        found[f"rank-{rank}/micro-batch-{index}/{name}"], array
                    )
        assert len(found.files) == 1 + 5 * sum(map(len, batch.shards))
