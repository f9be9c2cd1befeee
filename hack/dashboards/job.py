"""The view of one job: what a researcher looks at while it trains."""

from internals import FAULTS, PIPELINE, UPDATE
from panels import Graph, Query, Row, Stat, Unit, Variable, WeightRegistry, low_is_good
from series import JOB_LABELS, newest, rate, total

_STEPS_PER_SECOND = f"max(deriv(grpo_step{{{JOB_LABELS}}}[$window]))"
_IDLE = low_is_good(0.1, 0.3)


_OVERVIEW = Row(
    "Overview",
    (
        Stat(
            "Progress",
            "Steps done, steps of the whole run, and the current pass over the data, from 0.",
            (
                Query(newest("grpo_step"), "step"),
                Query(newest("grpo_total_steps"), "of"),
                Query(newest("grpo_episode"), "episode"),
            ),
            width=6,
            height=5,
        ),
        Stat(
            "Time left",
            "At the pace of the averaging window. Empty while no step is made.",
            (
                Query(
                    f"({newest('grpo_total_steps')} - {newest('grpo_step')})"
                    f" / ({_STEPS_PER_SECOND} > 0)",
                    "time left",
                ),
            ),
            Unit.SECONDS,
            width=3,
            height=5,
            decimals=0,
        ),
        Stat(
            "Reward",
            "Mean reward of the newest step's samples.",
            (Query(newest("grpo_reward_mean"), "reward"),),
            width=3,
            height=5,
            decimals=2,
        ),
        Stat(
            "Accuracy",
            "Share of right answers in the newest step.",
            (Query(newest("grpo_accuracy_mean"), "accuracy"),),
            Unit.SHARE,
            width=3,
            height=5,
            decimals=1,
        ),
        Stat(
            "Samples per second",
            "Samples trained on, over the averaging window.",
            (Query(rate("grpo_samples_total"), "samples/s"),),
            width=3,
            height=5,
            decimals=1,
        ),
        Stat(
            "Consumers idle",
            "The bubble: share of the newest step in which the training processes waited for data. "
            "Good: below 10 %. Bad: above 30 %, see the row on throughput.",
            (Query(newest("grpo_consumer_idle_ratio"), "idle"),),
            Unit.SHARE,
            _IDLE,
            width=3,
            height=5,
            decimals=0,
        ),
        Stat(
            "Worker restarts",
            "Producers and consumers that were started again since the job's start. Good: none. "
            "A few are survived; many mean broken nodes or too little memory.",
            (Query(f"sum({total('grpo_restarts_total', 'role')})", "restarts"),),
            levels=low_is_good(1, 5),
            width=3,
            height=5,
            nothing="0",
        ),
    ),
)

_LEARNING = Row(
    "Learning",
    (
        Graph(
            "Reward",
            "Mean reward of each step's samples. Good: rises, with noise, and levels off. Bad: "
            "falls after having risen (learning rate too high, see KL and gradient norm), or "
            "rises while the evaluation does not (the reward is being gamed).",
            (Query(newest("grpo_reward_mean"), "reward"),),
        ),
        Graph(
            "Accuracy and format",
            "Shares of right answers and of completions in the required format, of the samples "
            "that were trained on. The format is usually learned first. With dynamic sampling the "
            "accuracy stays near the middle by construction: look at the evaluation.",
            (
                Query(newest("grpo_accuracy_mean"), "right"),
                Query(newest("grpo_format_accuracy_mean"), "in format"),
            ),
            Unit.SHARE,
            maximum=1,
        ),
        Graph(
            "Evaluation accuracy",
            "Accuracy on each evaluation set, of the last evaluation to end. This is what counts. "
            "Bad: falls while the reward rises (overfitting, or a reward that is gamed).",
            (Query(newest("grpo_eval_accuracy", "dataset"), "{{dataset}}"),),
            Unit.SHARE,
            maximum=1,
        ),
        Graph(
            "Completion length",
            "Mean tokens of a completion. Bad: runs up to maxNewTokens, so that completions are "
            "cut off and cannot be right; or collapses to a few tokens.",
            (Query(newest("grpo_response_tokens_mean"), "tokens"),),
            width=12,
        ),
        Graph(
            "Prompts by fate",
            "Prompts per second. filtered: replaced by dynamic sampling, since all completions "
            "were right or all were wrong. requeued: given back by a producer that was lost. "
            "dropped: given up after five attempts. Bad: much more filtered than trained (data too "
            "easy or too hard), anything dropped.",
            (Query(rate("grpo_groups_total", "outcome"), "{{outcome}}"),),
            Unit.PER_SECOND,
            width=12,
            stacked=True,
        ),
    ),
)

_THROUGHPUT = Row(
    "Throughput and bubble",
    (
        Graph(
            "Samples per second",
            "Samples trained on. Good: flat. Bad: falls; find the phase that grew below.",
            (Query(rate("grpo_samples_total"), "samples/s"),),
        ),
        Graph(
            "Tokens per second",
            "Tokens of the samples trained on. It grows with the completions' length, so compare "
            "runs by it rather than by samples.",
            (Query(rate("grpo_tokens_total", "kind"), "{{kind}}"),),
            stacked=True,
        ),
        Graph(
            "Seconds per step",
            "Wall time of a step over the averaging window. A peak where steps were lost with a "
            "consumer and done again; empty while no step is made.",
            (Query(f"1 / ({_STEPS_PER_SECOND} > 0)", "step"),),
            Unit.SECONDS,
        ),
        Graph(
            "Idle",
            "Share of each step's wall time in which a side waited. Good: consumers below 10 %. "
            "Consumers idle: add producers or raise buffer.maxStaleness. Producers idle: "
            "producers to spare. Both idle: maxStaleness is 0, or another phase takes the time.",
            (
                Query(newest("grpo_consumer_idle_ratio"), "consumers"),
                Query(newest("grpo_producer_idle_ratio"), "producers"),
            ),
            Unit.SHARE,
            _IDLE,
            width=12,
            maximum=1,
        ),
        Graph(
            "Where the time goes",
            "Share of wall time by phase of the driver's loop. Good: train takes nearly all. "
            "take: waiting for producers, the bubble. publish: weights are sent slower than a "
            "step takes. evaluate: the evaluation before is not over yet. checkpoint: the disk. "
            "What is missing to 100 %: consumers that start again.",
            (Query(rate("grpo_phase_seconds_total", "phase"), "{{phase}}"),),
            Unit.SHARE,
            width=12,
            stacked=True,
        ),
    ),
)

JOB = WeightRegistry(
    uid="grpo-job",
    title="GRPO job",
    description="One training run: does it learn, is it fast, is it well.",
    rows=(_OVERVIEW, _LEARNING, _THROUGHPUT, PIPELINE, UPDATE, FAULTS),
    variables=(
        Variable("namespace", "Namespace", "grpo_step"),
        Variable("grpojob", "Job", 'grpo_step{namespace="$namespace"}'),
    ),
)
