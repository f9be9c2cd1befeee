"""The learning rate of a step."""

import math

from grpo_trainer.spec import ResolvedAlgorithm, Schedule
from grpo_trainer.spec.derived import min_learning_rate


def learning_rate(step: int, total_steps: int, algorithm: ResolvedAlgorithm) -> float:
    """The learning rate of `step`, 0 being the first.

    It rises linearly and reaches the peak at step `warmup_steps`, then stays constant, or decays
    linearly or by a cosine to the minimum at `total_steps`.
    """
    peak, optimizer = algorithm.learning_rate, algorithm.optimizer
    warmup, floor = optimizer.warmup_steps, min_learning_rate(algorithm)
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    match optimizer.schedule:
        case Schedule.CONSTANT:
            return peak
        case Schedule.LINEAR:
            return peak + (floor - peak) * done
        case Schedule.COSINE:
            return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * done))
