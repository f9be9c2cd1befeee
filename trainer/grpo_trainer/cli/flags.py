"""The flags of ColossalAI's `rl_example_zero_bubble.py`, and the field that each one sets.

One table: the parser, the merge into a manifest and the documentation read it. Flags and defaults
are the original's, so a command line moves over by changing the program's name.
"""

import functools
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..spec import AlgorithmName, Backend, GRPOJobSpec, RewardType

_RAY_PORT = 6379

SPEC = "spec."
OPTION = "options."


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and where its value goes."""

    short: str | None
    long: str
    path: str
    """`spec.` and a field of the manifest, or `options.` and one of RunOptions."""
    type: Callable[[str], Any]
    """Reads the value; `bool` is a switch without one. Raises ValueError or ArgumentTypeError."""
    help: str
    choices: tuple[str, ...] | None = None
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that are set to make the value hold."""

    @property
    def names(self) -> tuple[str, ...]:
        """As on the command line, short one first."""
        return (self.long,) if self.short is None else (self.short, self.long)

    @property
    def key(self) -> str:
        """Its attribute in argparse's namespace."""
        return self.long.removeprefix("--").replace("-", "_")

    @property
    def default(self) -> Any:
        """What holds without the flag; None where that depends on other fields or on the run."""
        node: Any = _defaults()
        if self.path.startswith(OPTION):
            return None
        for name in self.path.split("."):
            node = node[name]
        return node


@functools.cache
def _defaults() -> dict[str, Any]:
    return {"spec": GRPOJobSpec().model_dump(mode="json", by_alias=True)}


def off_below_one(text: str) -> int | None:
    """A whole number; None (off) for 0 and less."""
    return int(text) if int(text) > 0 else None


def zero_at_least(text: str) -> int:
    """A whole number; 0 (off) for less."""
    return max(0, int(text))


def paths_by_name(text: str) -> dict[str, str]:
    """A JSON object of names and paths."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"Invalid value: {text!r}: must be JSON: {error}") from error
    if not isinstance(value, dict) or not all(isinstance(path, str) for path in value.values()):
        must = 'must be like {"name": "path.jsonl", ...}'
        raise ArgumentTypeError(f"Invalid value: {text!r}: {must}")
    return value


def port(text: str) -> int:
    """A TCP port, 0 for a free one."""
    if not 0 <= int(text) <= 65535:
        raise ArgumentTypeError(f"Invalid value: {text}: must be a port, 0 to 65535")
    return int(text)


def ray_address(text: str) -> str:
    """`auto`, HOST:PORT, or a HOST with Ray's usual port."""
    return text if text == "auto" or ":" in text else f"{text}:{_RAY_PORT}"


FLAGS: tuple[Flag, ...] = (
    Flag("-m", "--model", "spec.model.path", str, "hub id or directory of the model"),
    Flag(
        None, "--tokenizer-path", "spec.model.tokenizerPath", str, "tokenizer; default: the model's"
    ),
    Flag("-d", "--dataset", "spec.dataset.path", str, "JSONL or parquet file"),
    Flag(
        "-ed",
        "--eval-dataset",
        "spec.evaluation.datasets",
        paths_by_name,
        'evaluation sets as JSON: {"name": "path.jsonl"}',
    ),
    Flag("-p", "--project", "spec.tracking.project", str, "name under which trackers file the run"),
    Flag("-e", "--num-episodes", "spec.numEpisodes", int, "passes over the data set"),
    Flag(
        "-t",
        "--num-trainers",
        "spec.consumers.processesPerReplica",
        int,
        "training processes, one accelerator each; sets consumers.replicas to 1",
        also={"spec.consumers.replicas": 1},
    ),
    Flag("-i", "--num-inferencer", "spec.producers.replicas", int, "inference producers"),
    Flag("-g", "--num-generations", "spec.sampling.numGenerations", int, "completions per prompt"),
    Flag(
        "-ibs",
        "--inference-batch-size",
        "spec.batch.inferenceBatchSize",
        int,
        "prompts that one producer holds at a time",
    ),
    Flag(
        "-imbs",
        "--inference-microbatch-size",
        "spec.batch.inferenceMicrobatchSize",
        int,
        "prompts that one producer generates for together",
    ),
    Flag(
        "-tbs",
        "--train-batch-size",
        "spec.batch.trainBatchSize",
        int,
        "prompts per data-parallel group in one optimizer step",
    ),
    Flag(
        "-tMbs",
        "--train-minibatch-size",
        "spec.batch.trainMinibatchSize",
        int,
        "prompts per data-parallel group in one accumulation round",
    ),
    Flag(
        "-tmbs",
        "--train-microbatch-size",
        "spec.batch.trainMicrobatchSize",
        int,
        "samples per forward pass",
    ),
    Flag(
        "-tp",
        "--tensor-parallel-size",
        "spec.consumers.tensorParallelSize",
        int,
        "tensor parallel size of the trainer",
    ),
    Flag(
        "-pp",
        "--pipeline-parallel-size",
        "spec.consumers.pipelineParallelSize",
        int,
        "pipeline parallel size of the trainer",
    ),
    Flag("-zero", "--zero-stage", "spec.consumers.zeroStage", int, "ZeRO stage of the optimizer"),
    Flag(None, "--ray_dir", "options.ray_temp_dir", Path, "directory for Ray's temporary files"),
    Flag(
        None,
        "--master_address",
        "options.ray_address",
        ray_address,
        "join the Ray cluster at HOST[:PORT], or `auto`; default: start one",
    ),
    Flag(
        None,
        "--master_port",
        "options.master_port",
        port,
        "rendezvous port of the trainers; default: a free one",
    ),
    Flag(
        "-b",
        "--backend",
        "spec.producers.backend",
        str,
        "inference engine",
        choices=tuple(map(str, Backend)),
    ),
    Flag("-temp", "--temperature", "spec.sampling.temperature", float, "sampling temperature"),
    Flag(
        "-topk",
        "--top-k",
        "spec.sampling.topK",
        off_below_one,
        "sample among the k likeliest tokens; default, and 0 or less: off",
    ),
    Flag(
        "-topp",
        "--top-p",
        "spec.sampling.topP",
        float,
        "sample from the smallest set of tokens with this mass",
    ),
    Flag(
        "-s",
        "--system-prompt",
        "spec.reward.systemPrompt",
        str,
        "system message; default: one per reward type",
    ),
    Flag(
        "-mnt",
        "--max-new-tokens",
        "spec.sampling.maxNewTokens",
        int,
        "longest completion in tokens",
    ),
    Flag(
        "-mpt",
        "--max-prompt-tokens",
        "spec.sampling.maxPromptTokens",
        int,
        "longest prompt in tokens",
    ),
    Flag(
        "-ptp",
        "--producer-tensor-parallel-size",
        "spec.producers.tensorParallelSize",
        int,
        "accelerators of one producer",
    ),
    Flag(
        "-a",
        "--algo",
        "spec.algorithm.name",
        str,
        "algorithm",
        choices=tuple(map(str, AlgorithmName)),
    ),
    Flag("-lr", "--learning-rate", "spec.algorithm.learningRate", float, "peak learning rate"),
    Flag(
        "-kl",
        "--kl-coeff",
        "spec.algorithm.klCoefficient",
        float,
        "weight of the KL term; default: 0.01 for GRPO, 0 for DAPO",
    ),
    Flag(
        "-rt",
        "--reward-type",
        "spec.reward.type",
        str,
        "how completions are scored",
        choices=tuple(map(str, RewardType)),
    ),
    Flag(
        "-ei",
        "--eval-interval",
        "spec.evaluation.interval",
        zero_at_least,
        "steps between evaluations; 0 or less: off",
    ),
    Flag(
        "-cbsl",
        "--data_actor_buffer_size_limit",
        "spec.buffer.maxPrompts",
        int,
        "scored groups that may wait; -1: twice the minibatch of all data-parallel groups",
    ),
    Flag("-si", "--save-interval", "spec.checkpoint.interval", int, "steps between checkpoints"),
    Flag(
        "-sd",
        "--save-dir",
        "options.checkpoint_dir",
        Path,
        "checkpoints go to a folder of the project's name in this one; default: the run directory",
    ),
    Flag(
        "-esd",
        "--eval-save-dir",
        "options.evaluation_dir",
        Path,
        "evaluations go to a folder of the project's name in this one; default: the run directory",
    ),
    Flag(
        "-rsd",
        "--rollout-save-dir",
        "options.rollout_dir",
        Path,
        "logged rollouts go to this folder; default: the run directory",
    ),
    Flag(
        None,
        "--enable_profiling",
        "spec.tracking.profiling",
        bool,
        "write traces of the consumers' first steps to the run directory's logs",
    ),
)

GROUPS: Mapping[str, tuple[str, ...]] = {
    "model and data": ("spec.model", "spec.dataset", "spec.numEpisodes"),
    "sampling": ("spec.sampling", "spec.producers", "spec.batch.inference"),
    "reward": ("spec.reward",),
    "training": ("spec.algorithm", "spec.consumers", "spec.batch.train", "spec.buffer"),
    "evaluation and output": (
        *("spec.evaluation", "spec.checkpoint", "spec.tracking"),
        *("options.checkpoint_dir", "options.evaluation_dir", "options.rollout_dir"),
    ),
    "processes": ("options.ray", "options.master"),
}
"""Titles of the help, each with the beginnings of its flags' paths."""


def flags_of(group: str) -> list[Flag]:
    """The flags of one group, in the order of the table."""
    return [flag for flag in FLAGS if flag.path.startswith(GROUPS[group])]
