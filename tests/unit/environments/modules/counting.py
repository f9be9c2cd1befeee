"""Environments for the tests of server and client."""

import asyncio
import os
import time

from grpo_trainer.environments.sdk import Environment, Observation, Task, ToolEnvironment


class Counting(Environment):
    """Counts the turns up to the row's `turns`; some words in a turn make it misbehave."""

    roles = ("user",)
    capacity = 3

    def reset(self, row, seed):
        if row.get("fails"):
            raise RuntimeError("no such row")
        self.turns, self.seen = row["turns"], 0
        return Task([{"role": "user", "content": f"count to {self.turns} {seed}"}])

    def step(self, completion):
        match completion:
            case "raise":
                raise ValueError("odd turn")
            case "sleep":
                time.sleep(60)
            case "exit":
                os._exit(3)
            case "number":
                return Observation(done=True, reward=float("nan"))
        self.seen += 1
        if self.seen == self.turns:
            return Observation(done=True, reward=1.0, metrics={"accuracy": 0.5})
        return Observation([{"role": "user", "content": str(self.seen)}])


class Async(Counting):
    """The same with coroutines."""

    async def reset(self, row, seed):
        await asyncio.sleep(0)
        return super().reset(row, seed)

    async def step(self, completion):
        await asyncio.sleep(0)
        return super().step(completion)


class Forgetful(Counting):
    idle_seconds = 0.0
    capacity = None


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Adder(ToolEnvironment):
    tools = (add,)

    def reset(self, row, seed):
        self.answer = row["answer"]
        return Task([{"role": "user", "content": row["question"]}], self.schemas())

    def score(self, completion):
        return completion.strip() == self.answer
