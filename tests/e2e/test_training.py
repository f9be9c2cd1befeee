"""A job trains in a cluster, with the images and the chart that users get.

Aspects: the quickstart learns, with either engine, and leaves a model that loads; two jobs run
side by side, one of them over two nodes.
"""

import asyncio
import json
from statistics import mean

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from e2e.runs import START_SECONDS, Runs, quickstart
from kube.harness import Object
from kube.operator_harness import phase_of

_TRAINING_SECONDS = 600


async def until_succeeded(runs: Runs, name: str) -> Object:
    job = await runs.until(
        name, lambda job: phase_of(job) == "Succeeded", START_SECONDS + _TRAINING_SECONDS
    )
    return job


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
async def test_the_quickstart_learns_and_leaves_a_model_that_loads(
    runs: Runs, backend: str
) -> None:
    name = f"quickstart-{backend}"
    manifest = quickstart(name, producers={"backend": backend}, maxSteps=60)
    await runs.start(manifest, own_model=backend == "transformers")

    job = await until_succeeded(runs, name)

    assert job["status"]["attempt"] == 1
    rewards = [row["grpo_reward_mean"] for row in runs.metrics(job)]
    assert len(rewards) == 60
    assert mean(rewards[-10:]) > mean(rewards[:10]) + 0.5
    directory = runs.deployment.run_directory(job)
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["outcome"] == "succeeded"
    checkpoint = directory / "checkpoints" / "step-60"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    prompt = tokenizer("1+1=", return_tensors="pt")
    assert model.generate(**prompt, max_new_tokens=4).shape[1] > prompt["input_ids"].shape[1]


async def test_two_jobs_train_side_by_side_one_of_them_over_two_nodes(runs: Runs) -> None:
    shared = {"size": "1Gi", "storageClassName": "shared", "accessModes": ["ReadWriteMany"]}
    apart = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    names = ("one-node", "two-nodes")
    short = {"maxSteps": 10, "evaluation": {"interval": 0}}

    await asyncio.gather(
        runs.start(quickstart(names[0], **short)),
        runs.start(
            quickstart(
                names[1],
                storage=shared,
                head={"nodeSelector": {"kubernetes.io/hostname": "node-0"}},
                producers=apart,
                consumers=apart,
                **short,
            )
        ),
    )

    for job in await asyncio.gather(*(until_succeeded(runs, name) for name in names)):
        assert runs.steps(job) == list(range(1, 11))
