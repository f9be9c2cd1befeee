"""The dashboard of one job."""

from internals import FAULTS, PIPELINE, UPDATE
from panels import Dashboard, Graph, Query, Row, Stat, Unit, Variable, low_is_good
from series import JOB_LABELS, newest, rate, total

_STEPS_PER_SECOND = f"max(deriv(grpo_step{{{JOB_LABELS}}}[$window]))"
_IDLE = low_is_good(0.1, 0.3)


_OVERVIEW = Row(
    "Overview",
    (
        Stat(
            "Progress",
            "Optimizer steps done, as a share of the planned steps. A run whose groups are "
            "filtered ends earlier, when the data is used up.",
            (Query(f"{newest('grpo_step')} / {newest('grpo_total_steps')}", "progress"),),
            Unit.SHARE,
            width=3,
            height=5,
            decimals=0,
        ),
        Stat(
            "Step",
            "Optimizer steps done.",
            (Query(newest("grpo_step"), "step"),),
            width=2,
            height=5,
            decimals=0,
        ),
        Stat(
            "Planned steps",
            "Optimizer steps of the whole run.",
            (Query(newest("grpo_total_steps"), "steps"),),
            width=2,
            height=5,
            decimals=0,
        ),
        Stat(
            "Episode",
            "Current pass over the data set, from 0.",
            (Query(newest("grpo_episode"), "episode"),),
            width=2,
            height=5,
            decimals=0,
        ),
        Stat(
            "Time left",
            "Remaining steps at the pace of the averaging window. Empty while no step completes.",
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
            "Mean reward of the newest step's completions.",
            (Query(newest("grpo_reward_mean"), "reward"),),
            width=2,
            height=5,
            decimals=2,
        ),
        Stat(
            "Accuracy",
            "Share of correct answers in the newest step.",
            (Query(newest("grpo_accuracy_mean"), "accuracy"),),
            Unit.SHARE,
            width=2,
            height=5,
            decimals=1,
        ),
        Stat(
            "Samples per second",
            "Completions of trained groups, over the averaging window.",
            (Query(rate("grpo_samples_total"), "samples/s"),),
            width=3,
            height=5,
            decimals=1,
        ),
        Stat(
            "Consumers idle",
            "The bubble: share of the newest step in which the training processes waited for data. "
            "Good: below 10 %. Bad: above 30 %; see the row Throughput and bubble.",
            (Query(newest("grpo_consumer_idle_ratio"), "idle"),),
            Unit.SHARE,
            _IDLE,
            width=3,
            height=5,
            decimals=0,
        ),
        Stat(
            "Restarts",
            "Restarts of producers and consumers since the start of the job. Good: none. Many: "
            "unhealthy nodes or too little memory.",
            (Query(f"sum({total('grpo_restarts_total', 'role')})", "restarts"),),
            levels=low_is_good(1, 5),
            width=2,
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
            "Mean reward of each step's completions. Good: rises with noise, then levels off. "
            "Bad: falls after a rise (learning rate too high: see KL and gradient norm), or rises "
            "while the evaluation accuracy does not (reward hacking).",
            (Query(newest("grpo_reward_mean"), "reward"),),
        ),
        Graph(
            "Accuracy and format",
            "Shares of completions with a correct answer and in the required format, of trained "
            "groups. The format is usually learned first. Dynamic sampling keeps the accuracy near "
            "the middle by construction: compare the evaluation accuracy.",
            (
                Query(newest("grpo_accuracy_mean"), "correct"),
                Query(newest("grpo_format_accuracy_mean"), "in format"),
            ),
            Unit.SHARE,
            maximum=1,
        ),
        Graph(
            "Evaluation accuracy",
            "Accuracy of the newest evaluation of each set: the measure of success. Bad: falls "
            "while the reward rises (overfitting or reward hacking).",
            (
                Query(newest("grpo_eval_accuracy", "dataset"), "{{dataset}}"),
                Query(newest("grpo_eval_pass_at_k", "dataset"), "{{dataset}}, pass@k"),
            ),
            Unit.SHARE,
            maximum=1,
        ),
        Graph(
            "Parts of the reward",
            "Mean of each part before its weight. Good: the first, which gives accuracy, rises. "
            "Bad: another part rises at its cost; lower that part's weight. Empty for a reward "
            "without parts.",
            (Query(newest("grpo_reward_part_mean", "part"), "{{part}}"),),
        ),
        Graph(
            "Completion length",
            "Mean tokens per completion. Bad: grows to maxNewTokens, so that completions are "
            "truncated; or collapses to a few tokens.",
            (Query(newest("grpo_response_tokens_mean"), "tokens"),),
        ),
        Graph(
            "Prompts by outcome",
            "filtered: replaced by dynamic sampling, all completions correct or all wrong. "
            "requeued: returned by a producer that was lost. dropped: abandoned after five "
            "attempts. Bad: much more filtered than trained (data too easy or too hard), or any "
            "dropped.",
            (Query(rate("grpo_groups_total", "outcome"), "{{outcome}}"),),
            Unit.PROMPTS_PER_SECOND,
            stacked=True,
        ),
    ),
)

_THROUGHPUT = Row(
    "Throughput and bubble",
    (
        Graph(
            "Samples per second",
            "Completions of trained groups. Good: constant. Bad: falls; find the phase that grows "
            'in "Time by phase".',
            (Query(rate("grpo_samples_total"), "samples"),),
            Unit.SAMPLES_PER_SECOND,
        ),
        Graph(
            "Tokens per second",
            "Tokens of trained groups. Compare runs by tokens rather than samples: the length of "
            "completions changes.",
            (Query(rate("grpo_tokens_total", "kind"), "{{kind}}"),),
            Unit.TOKENS_PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Seconds per step",
            "Wall time of a step over the averaging window. Peaks where a lost consumer made the "
            "run repeat steps; empty while no step completes.",
            (Query(f"1 / ({_STEPS_PER_SECOND} > 0)", "step"),),
            Unit.SECONDS,
        ),
        Graph(
            "Consumers idle",
            "Share of each step's wall time that consumers waited for data: the bubble. Good: "
            "below 10 %. Bad: add producers or raise buffer.maxStaleness.",
            (Query(newest("grpo_consumer_idle_ratio"), "consumers"),),
            Unit.SHARE,
            _IDLE,
            width=6,
            maximum=1,
        ),
        Graph(
            "Producers idle",
            "Share of each step's wall time that producers were idle. Usually harmless: consumers "
            "are the bottleneck and there are producers to spare. Together with idle consumers: "
            "maxStaleness is 0, or a phase other than take and train takes the time.",
            (Query(newest("grpo_producer_idle_ratio"), "producers"),),
            Unit.SHARE,
            width=6,
            maximum=1,
        ),
        Graph(
            "Time by phase",
            "Share of wall time by phase of the training loop. Good: train dominates. take: "
            "consumers wait for producers, the bubble. publish: weights take longer than a step. "
            "evaluate: the previous evaluation has not ended. checkpoint: a slow volume. The rest "
            "to 100 %: consumers restart.",
            (Query(rate("grpo_phase_seconds_total", "phase"), "{{phase}}"),),
            Unit.SHARE,
            width=12,
            stacked=True,
        ),
    ),
)

JOB = Dashboard(
    uid="grpo-job",
    title="GRPO job",
    description="One training run: learning, throughput, faults.",
    rows=(_OVERVIEW, _LEARNING, _THROUGHPUT, PIPELINE, UPDATE, FAULTS),
    variables=(
        Variable("namespace", "Namespace", "grpo_step"),
        Variable("grpojob", "Job", 'grpo_step{namespace="$namespace"}'),
    ),
)
