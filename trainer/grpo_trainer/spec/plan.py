"""What the sizes of a spec amount to: batches, micro-batches, steps and the learning rate."""

from dataclasses import dataclass

from .algorithm import Schedule
from .derived import ResolvedAlgorithm, min_learning_rate, resolve_algorithm
from .job import GRPOJobSpec


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """The sizes of a run."""

    data_parallel_size: int
    prompts_per_step: int
    """Over all data-parallel groups."""
    samples_per_step: int
    micro_batches: int
    """Forward passes of one data-parallel group in a step, at most."""
    buffer_capacity: int
    planned_steps: int | None
    """None while neither the number of prompts nor maxSteps is known."""
    algorithm: ResolvedAlgorithm

    def lines(self) -> list[str]:
        """For people, one subject a line."""
        steps = "until the data end" if self.planned_steps is None else str(self.planned_steps)
        return [
            f"step: {self.prompts_per_step} prompts, {self.samples_per_step} completions",
            f"micro-batches: {self.micro_batches} in each of {self.data_parallel_size} "
            "data-parallel groups",
            f"buffer: {self.buffer_capacity} groups",
            f"steps: {steps}",
            f"learning rate: {_schedule(self.algorithm)}",
            f"loss: {_loss(self.algorithm)}",
        ]


def resolve_plan(spec: GRPOJobSpec, prompts: int | None = None) -> ResolvedPlan:
    """The plan of a spec; `prompts` is the number of prompts in the data set, if known."""
    samples = spec.groups_per_step * spec.sampling.num_generations
    per_group = -(-samples // spec.data_parallel_size)
    return ResolvedPlan(
        data_parallel_size=spec.data_parallel_size,
        prompts_per_step=spec.groups_per_step,
        samples_per_step=samples,
        micro_batches=-(-per_group // smallest_microbatch(spec)),
        buffer_capacity=spec.buffer_capacity,
        planned_steps=spec.max_steps if prompts is None else planned_steps(spec, prompts),
        algorithm=resolve_algorithm(spec),
    )


def smallest_microbatch(spec: GRPOJobSpec) -> int:
    """Samples of a full micro-batch whose samples all have the maximum length."""
    tokens = spec.batch.train_microbatch_tokens
    return spec.batch.train_microbatch_size if tokens is None else tokens // spec.longest_sample


def planned_steps(spec: GRPOJobSpec, prompts: int) -> int:
    """Steps until the data end, the last one possibly smaller, or maxSteps if that is less.

    Filtered groups make a run shorter than planned.
    """
    by_data = -(-prompts * spec.num_episodes // spec.groups_per_step)
    return by_data if spec.max_steps is None else min(by_data, spec.max_steps)


def _schedule(algorithm: ResolvedAlgorithm) -> str:
    optimizer = algorithm.optimizer
    warmup = f"{optimizer.warmup_steps} steps of warm-up to " if optimizer.warmup_steps else ""
    constant = optimizer.schedule is Schedule.CONSTANT
    decay = "constant" if constant else f"{optimizer.schedule} to {min_learning_rate(algorithm):g}"
    return f"{warmup}{algorithm.learning_rate:g}, {decay}"


def _loss(algorithm: ResolvedAlgorithm) -> str:
    a = algorithm
    kl = f"{a.kl_coefficient:g} x KL ({a.kl_form})" if a.kl_coefficient else "no KL term"
    return (
        f"advantage {a.advantage}, {a.importance_ratio} ratio {a.loss_form} to "
        f"[{1 - a.clip_low:g}, {1 + a.clip_high:g}], aggregation {a.loss_aggregation}, {kl}"
    )
