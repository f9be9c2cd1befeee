"""What is trained: model, data, reward, sampling, batches, checkpoints, tracking."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import NonEmptyStr, NonNegativeInt, PositiveFloat, PositiveInt, Record
from .kubernetes import ObjectName
from .templates import Pattern, Template


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class ModelSpec(Record):
    path: NonEmptyStr = "Qwen/Qwen2.5-7B"
    """Hub id, a directory on the volume, or `builtin://tiny`."""
    tokenizer_path: NonEmptyStr | None = None
    """Path or hub id of the tokenizer; the model's path when absent."""
    dtype: Dtype = Dtype.BFLOAT16
    """Working precision of the weights; optimizer state and log-probabilities stay fp32."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass to save memory."""
    trust_remote_code: bool = False
    """Run Python code that is part of the model. Enable it only for authors you trust."""


HUB_SCHEME = "hf://"
"""Begins paths of data sets on the Hugging Face Hub."""


class DatasetSpec(Record):
    path: NonEmptyStr = "data.jsonl"
    """JSONL or parquet file on the volume, `hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT`, or
    `builtin://addition`."""
    prompt_column: NonEmptyStr = "messages"
    """Column with the chat messages (one dict or a list), or with text."""
    prompt_template: Template | None = None
    """The user's message, in which `{column}` is the text of a column; replaces promptColumn."""
    answer_column: NonEmptyStr = "gt_answer"
    """Column with the reference answer."""
    answer_pattern: Pattern | None = None
    """Regular expression of the reference answer in its column: its group, of the last match; the
    whole column when absent."""
    tests_column: NonEmptyStr = "test_cases"
    """Column with the test cases of a `code` reward."""


class MixtureSetSpec(DatasetSpec):
    path: NonEmptyStr
    """As `dataset.path`."""
    weight: PositiveFloat = 1.0
    """Share of this set in each pass, relative to the other weights."""


class SamplingSpec(Record):
    num_generations: Annotated[int, Field(ge=2)] = 8
    """Completions per prompt (the group)."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of rollouts."""
    top_k: PositiveInt | None = None
    """Sample among the k most likely tokens; off when absent. The trainer renormalizes equally."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the smallest set of tokens with this mass. The trainer renormalizes equally."""
    max_new_tokens: PositiveInt = 3584
    """Maximum length of a completion in tokens."""
    max_prompt_tokens: PositiveInt = 512
    """Maximum length of a prompt in tokens; longer ones are dropped at load and counted, never
    truncated."""
    stop_strings: tuple[NonEmptyStr, ...] | None = None
    """Texts that end a completion. When absent `</answer>` for think_answer_tags, else none."""
    stop_token_ids: tuple[NonNegativeInt, ...] = ()
    """Tokens that end a completion, beside those of the model, its tokenizer and its chat
    template."""


class BatchSpec(Record):
    inference_batch_size: PositiveInt = 64
    """Prompts that one producer holds at a time."""
    inference_microbatch_size: PositiveInt = 8
    """Prompts that one producer generates completions for together."""
    train_batch_size: PositiveInt = 32
    """Prompts per data-parallel group in one step; globalPrompts replaces it."""
    global_prompts: PositiveInt | None = None
    """Prompts in one step over all data-parallel groups, whatever the number of accelerators;
    trainBatchSize x data-parallel groups when absent."""
    train_minibatch_size: PositiveInt = 8
    """Prompts per data-parallel group from which the default capacity of the buffer follows."""
    train_microbatch_size: PositiveInt = 2
    """Samples per forward pass; the gradient does not depend on it."""
    train_microbatch_tokens: PositiveInt | None = None
    """Tokens per forward pass, padding included, instead of trainMicrobatchSize samples; at least
    the longest prompt and completion. The gradient does not depend on it."""


class BufferSpec(Record):
    max_prompts: Annotated[int, Field(ge=-1)] = -1
    """Scored groups that may wait in addition to those of the next step. -1: two minibatches per
    data-parallel group, or half of globalPrompts."""
    max_staleness: NonNegativeInt = 4
    """Weight versions between sampling and training; 0 is synchronous and on-policy."""


class CheckpointSpec(Record):
    interval: NonNegativeInt = 100
    """Steps between checkpoints; 0 writes only that of the last step."""
    keep_last: PositiveInt = 3
    """Number of complete checkpoints to keep."""
    drain_seconds: PositiveInt = 300
    """Seconds in a cluster for the step under way and a checkpoint before pods are deleted. The
    grace period of new pods of head and consumers is 30 s longer."""
    resume_from: NonEmptyStr | None = None
    """Checkpoint directory to start from when the run has none of its own."""


class RolloutLogSpec(Record):
    log_interval: NonNegativeInt = 20
    """Steps between logged batches of rollouts; 0 disables the log."""
    tokens: bool = False
    """Log each token with the log of its importance ratio, which `grpo report` shows in colours;
    the files get about four times as large."""


class WandbSpec(Record):
    entity: NonEmptyStr | None = None
    """Team or user of the run; the account's default when absent."""
    secret_name: ObjectName | None = None
    """Secret with key WANDB_API_KEY, required in a cluster; a local run uses its environment."""


class MlflowSpec(Record):
    tracking_uri: NonEmptyStr | None = None
    """Address of the server, `http://mlflow:5000`, or a database, `sqlite:////data/mlflow.db`.
    Required in a cluster; MLFLOW_TRACKING_URI or MLflow's own default when absent."""


class TrackioSpec(Record):
    space_id: NonEmptyStr | None = None
    """Hugging Face Space that shows the run; Trackio's local directory when absent."""


class TrackingSpec(Record):
    project: NonEmptyStr = "GRPO"
    """Project of the run in the trackers."""
    tensorboard: bool = True
    """Write TensorBoard's files to the run directory."""
    wandb: WandbSpec | None = None
    """Send metrics to Weights & Biases."""
    mlflow: MlflowSpec | None = None
    """Send metrics to MLflow; the project is the experiment."""
    trackio: TrackioSpec | None = None
    """Send metrics to Trackio."""
    profiling: bool = False
    """Write traces of the consumers' first steps to the run directory's `logs`."""
