"""An environment that opens each episode differently, as it must not."""

import itertools

from grpo_trainer.environments.sdk import Environment, Observation, Task

NUMBERS = itertools.count()


class RandomOpening(Environment):
    def reset(self, row, seed):
        return Task([{"role": "user", "content": f"number {next(NUMBERS)}"}])

    def step(self, completion):
        return Observation(done=True, reward=1.0)
