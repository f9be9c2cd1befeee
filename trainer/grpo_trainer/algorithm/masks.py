"""Which completions and groups are trained on."""

import numpy as np

from grpo_trainer.messages import Completion, FinishReason, ScoredGroup
from grpo_trainer.spec import ResolvedAlgorithm


def trained_rewards(group: ScoredGroup, algorithm: ResolvedAlgorithm) -> list[float | None]:
    """[G] rewards; None for a completion that is masked.

    Masked are completions without a finite reward, those without a token that counts in the loss,
    and, if algorithm.mask_truncated, truncated ones.
    """

    def masked(completion: Completion, reward: float | None) -> bool:
        truncated = completion.finish_reason is FinishReason.LENGTH
        return (
            reward is None
            or not np.isfinite(reward)
            or not completion.counted.any()
            or (algorithm.mask_truncated and truncated)
        )

    pairs = zip(group.rollout.completions, group.scores, strict=True)
    return [None if masked(c, score.reward) else score.reward for c, score in pairs]


def has_signal(group: ScoredGroup, algorithm: ResolvedAlgorithm) -> bool:
    """Whether dynamic sampling keeps a group (https://arxiv.org/abs/2503.14476, 3.2).

    The rewards that are trained on must differ: equal ones give advantages of 0, whatever the
    accuracy. If bounds are set, the mean accuracy of the same completions must be within them.
    """
    rewards = trained_rewards(group, algorithm)
    trained = [(r, s.accuracy) for r, s in zip(rewards, group.scores, strict=True) if r is not None]
    if len({reward for reward, _ in trained}) < 2:
        return False
    accuracy = sum(a for _, a in trained) / len(trained)
    low, high = algorithm.min_accuracy, algorithm.max_accuracy
    return (low == 0 or accuracy > low) and (high == 1 or accuracy < high)
