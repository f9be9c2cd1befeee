"""Validation that the API server does in CEL: rules across fields, immutability, names.

The cross-field rules are those of `grpo_trainer.spec.rules`, in the same words. The API server
itself puts the field and its value before each message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_trainer.spec import MAX_NAME_LENGTH, MUTABLE_FIELDS
from grpo_trainer.spec.base import NAME_PATTERN

from .schema import Schema

MUTABLE = frozenset(path.removeprefix("spec.") for path in MUTABLE_FIELDS)


@dataclass(frozen=True)
class Rule:
    """`holds` is CEL over the object it is put on, `legal` what would be legal instead."""

    holds: str
    legal: str
    field: str = ""
    """Path of the field at fault, from that object."""
    numbers: tuple[str, ...] = ()
    """CEL for each `%s` in `legal`."""
    shown: bool = False
    """Whether the message shows the field's value, which the API server itself does not."""

    def to_schema(self) -> Schema:
        """As an item of `x-kubernetes-validations`."""
        schema: Schema = {"rule": self.holds}
        if self.field:
            schema["fieldPath"] = self.field
        if self.shown:
            values = ", ".join((f"self{self.field}", *self.numbers))
            legal = self.legal.replace("'", r"\'")
            schema["messageExpression"] = f"'%s is not legal: {legal}'.format([{values}])"
        else:
            schema["message"] = self.legal
        return schema


NAME_RULES = (
    Rule(
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        f"metadata.name: at most {MAX_NAME_LENGTH} characters, because the RayCluster is called "
        "<name>-<8 digits> and its name ends at 53",
    ),
    Rule(
        f"self.metadata.name.matches('{NAME_PATTERN}')",
        "metadata.name: lower-case letters, digits and '-', beginning with a letter and ending "
        "with a letter or digit",
    ),
)

_PROCESSES = "self.consumers.replicas * self.consumers.processesPerReplica"
_PARALLEL = "self.consumers.tensorParallelSize * self.consumers.pipelineParallelSize"
_SAMPLES = "self.batch.trainMinibatchSize * self.sampling.numGenerations"

CROSS_FIELD_RULES = (
    Rule(
        f"({_PROCESSES}) % ({_PARALLEL}) == 0",
        "replicas x processesPerReplica (%s) must be a multiple of "
        "tensorParallelSize x pipelineParallelSize (%s)",
        ".consumers.processesPerReplica",
        (_PROCESSES, _PARALLEL),
        shown=True,
    ),
    Rule(
        "self.consumers.pipelineParallelSize == 1 || self.consumers.zeroStage != 2",
        "0 or 1 with pipelineParallelSize > 1: a pipeline adds to gradients that stage 2 frees",
        ".consumers.zeroStage",
        shown=True,
    ),
    Rule(
        f"{_PARALLEL} == 1 || self.consumers.zeroStage == 0 || self.model.dtype != 'float32'",
        "0 with float32 and tensor or pipeline parallelism, or set model.dtype: bfloat16",
        ".consumers.zeroStage",
        shown=True,
    ),
    Rule(
        "self.batch.trainBatchSize % self.batch.trainMinibatchSize == 0",
        "a multiple of trainMinibatchSize (%s)",
        ".batch.trainBatchSize",
        ("self.batch.trainMinibatchSize",),
        shown=True,
    ),
    Rule(
        "self.batch.inferenceBatchSize % self.batch.inferenceMicrobatchSize == 0",
        "a multiple of inferenceMicrobatchSize (%s)",
        ".batch.inferenceBatchSize",
        ("self.batch.inferenceMicrobatchSize",),
        shown=True,
    ),
    Rule(
        f"self.batch.trainMicrobatchSize <= {_SAMPLES}",
        "at most trainMinibatchSize x numGenerations (%s) samples",
        ".batch.trainMicrobatchSize",
        (_SAMPLES,),
        shown=True,
    ),
    Rule(
        "self.algorithm.dynamicSampling.minAccuracy < self.algorithm.dynamicSampling.maxAccuracy",
        "less than maxAccuracy (%s)",
        ".algorithm.dynamicSampling.minAccuracy",
        ("self.algorithm.dynamicSampling.maxAccuracy",),
        shown=True,
    ),
    Rule(
        "!has(self.algorithm.overlong.bufferTokens) || "
        "self.algorithm.overlong.bufferTokens <= self.sampling.maxNewTokens",
        "at most sampling.maxNewTokens (%s)",
        ".algorithm.overlong.bufferTokens",
        ("self.sampling.maxNewTokens",),
        shown=True,
    ),
    Rule(
        "self.reward.type != 'custom' || has(self.reward.custom)",
        "type custom needs {module, function}",
        ".reward.custom",
    ),
    Rule(
        "self.reward.type == 'custom' || !has(self.reward.custom)",
        "custom, when reward.custom is given",
        ".reward.type",
        shown=True,
    ),
    Rule(
        "self.producers.minAvailable <= self.producers.replicas",
        "at most replicas (%s)",
        ".producers.minAvailable",
        ("self.producers.replicas",),
        shown=True,
    ),
    Rule(
        "!has(self.producers.autoscale) || "
        "self.producers.autoscale.minReplicas <= self.producers.autoscale.maxReplicas",
        "at most maxReplicas (%s)",
        ".producers.autoscale.minReplicas",
        ("self.producers.autoscale.maxReplicas",),
        shown=True,
    ),
    Rule(
        "!has(self.producers.autoscale) || "
        "self.producers.autoscale.minReplicas > self.producers.autoscale.maxReplicas || "
        "(self.producers.autoscale.minReplicas <= self.producers.replicas && "
        "self.producers.replicas <= self.producers.autoscale.maxReplicas)",
        "within autoscale's range (%s to %s)",
        ".producers.replicas",
        ("self.producers.autoscale.minReplicas", "self.producers.autoscale.maxReplicas"),
        shown=True,
    ),
    Rule(
        "!has(self.producers.autoscale) || "
        "self.producers.minAvailable <= self.producers.autoscale.minReplicas",
        "at most autoscale.minReplicas (%s)",
        ".producers.minAvailable",
        ("self.producers.autoscale.minReplicas",),
        shown=True,
    ),
    Rule(
        "!has(self.producers.autoscale) || !has(self.queueName)",
        "absent with producers.autoscale: Kueue reserves quota for a fixed number of pods",
        ".queueName",
        shown=True,
    ),
    Rule(
        "self.producers.tensorParallelSize == 1 || self.producers.backend != 'transformers'",
        "1, or set backend: vllm",
        ".producers.tensorParallelSize",
        shown=True,
    ),
    Rule(
        "self.producers.weightUpdate == 'betweenRequests' || self.producers.backend == 'vllm'",
        "betweenRequests, or set backend: vllm",
        ".producers.weightUpdate",
        shown=True,
    ),
    Rule(
        "has(self.storage.claimName) != has(self.storage.size)",
        "exactly one of claimName and size",
        ".storage",
    ),
    Rule(
        "!has(self.tracking.wandb) || has(self.tracking.wandb.secretName)",
        "secretName is required in a cluster: a Secret with key WANDB_API_KEY",
        ".tracking.wandb",
    ),
    Rule(
        "!has(self.queueName) || self.producers.replicas == oldSelf.producers.replicas",
        "fixed while queueName is set: Kueue reserved quota for the pods that were asked for",
        ".producers.replicas",
        shown=True,
    ),
)


def immutability(schema: Schema, path: str = "") -> Iterator[tuple[Schema, Rule]]:
    """Each object of a spec's schema with a transition rule for each of its immutable leaves.

    A leaf is whatever has no default of its own to hold its place: a rule on it alone would not
    run when it is added or taken away, so the rule stands on the object around it.
    """
    for name, child in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        if here in MUTABLE:
            continue
        if "properties" in child and "default" in child:
            yield from immutability(child, here)
            continue
        same = f"self.{name} == oldSelf.{name}"
        if "default" not in child and name not in schema.get("required", ()):
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        yield schema, Rule(same, f"spec.{here} is immutable; create a new GRPOJob", f".{name}")


def attach(schema: Schema, rule: Rule) -> None:
    """Put a rule on an object of the schema."""
    rules: list[Any] = schema.setdefault("x-kubernetes-validations", [])
    rules.append(rule.to_schema())
