"""The lower rows of the view of a job: the pipeline, the policy update, checkpoints and faults."""

from panels import Color, Graph, Levels, Query, Row, Unit, low_is_good
from series import newest, rate, total

_STALENESS = "grpo_staleness_versions"


def _staleness_quantile(quantile: float) -> str:
    """In whole versions: values between two are made up by the interpolation."""
    return f"ceil(histogram_quantile({quantile}, {rate(f'{_STALENESS}_bucket', 'le')}))"


PIPELINE = Row(
    "Buffer, staleness and weights",
    (
        Graph(
            "Buffer",
            "Scored groups that wait at the end of each step. Always empty: consumers will wait; "
            "normal with maxStaleness 0. Never empty: producers wait, since the capacity or "
            "maxStaleness is reached.",
            (
                Query(newest("grpo_buffer_depth"), "groups"),
                Query(newest("grpo_buffer_capacity"), "capacity"),
            ),
            width=6,
        ),
        Graph(
            "Staleness",
            "Weight versions between sampling and training, by groups. Never above "
            "buffer.maxStaleness. Good: low. High and with much clipping: lower maxStaleness. "
            "Quantiles above 2 are interpolated between 4, 8 and 16.",
            (
                Query(_staleness_quantile(0.5), "median"),
                Query(_staleness_quantile(0.95), "95 %"),
                Query(f"{rate(f'{_STALENESS}_sum')} / {rate(f'{_STALENESS}_count')}", "mean"),
            ),
            width=6,
        ),
        Graph(
            "Sending weights",
            "Seconds to publish the newest version, and for producers to load it. Good: the sum "
            "is below the time of a step, since sending overlaps training.",
            (
                Query(newest("grpo_weight_publish_seconds"), "publish"),
                Query(newest("grpo_weight_apply_seconds"), "apply"),
            ),
            Unit.SECONDS,
            width=6,
        ),
        Graph(
            "Weight version",
            "Newest version that was published: one a step. Flat: no step is made.",
            (Query(newest("grpo_weight_version"), "version"),),
            width=6,
        ),
    ),
)

UPDATE = Row(
    "Policy update",
    (
        Graph(
            "Loss",
            "Small and around 0 by construction: advantages of a group sum to 0. It tells little "
            "about learning; a jump or a gap (not a number) tells of a fault.",
            (Query(newest("grpo_loss"), "loss"),),
            width=6,
        ),
        Graph(
            "Gradient norm",
            "Before clipping. Good: the same order of magnitude throughout. Bad: spikes or growth "
            "(lower the learning rate); 0, steps without any signal.",
            (Query(newest("grpo_gradient_norm"), "norm"),),
            width=6,
        ),
        Graph(
            "Learning rate",
            "A cosine from its peak down to a tenth.",
            (Query(newest("grpo_learning_rate"), "rate"),),
            width=6,
        ),
        Graph(
            "KL to the reference",
            "k3 estimate per token; 0 where klCoefficient is 0 and no reference is kept. Good: "
            "grows slowly. Above 1 the policy has left its origin: lower the learning rate or "
            "raise klCoefficient.",
            (Query(newest("grpo_kl"), "KL"),),
            levels=low_is_good(0.5, 1.0),
            width=6,
        ),
        Graph(
            "Entropy",
            "Nats per token. Good: falls slowly. Bad: collapses to near 0 early (all completions "
            "of a group alike, nothing left to learn from: raise clipHigh or the temperature), or "
            "climbs (the policy comes apart).",
            (Query(newest("grpo_entropy"), "entropy"),),
        ),
        Graph(
            "Clipped tokens",
            "Share of tokens whose ratio was clipped, below and above. Good: a few percent at "
            "most. Bad: above 20 %: steps too large or samples too old.",
            (Query(newest("grpo_clip_ratio", "side"), "{{side}}"),),
            Unit.SHARE,
            low_is_good(0.1, 0.2),
        ),
        Graph(
            "Importance ratio",
            "Mean ratio between the training and the sampling policy. Good: 1. Away from 1 on "
            "fresh samples: the inference engine and the trainer disagree on log-probabilities.",
            (Query(newest("grpo_importance_ratio_mean"), "ratio"),),
            levels=Levels(Color.RED, ((0.9, Color.GREEN), (1.1, Color.RED))),
            decimals=3,
        ),
    ),
)

FAULTS = Row(
    "Checkpoints and faults",
    (
        Graph(
            "Steps at risk",
            "Steps since the newest checkpoint: what a lost consumer or driver costs.",
            (
                Query(
                    f"{newest('grpo_step')} - {newest('grpo_checkpoint_step')}",
                    "steps since the checkpoint",
                ),
            ),
            width=6,
        ),
        Graph(
            "Checkpoint time",
            "Seconds to write the newest checkpoint; training waits for it. Bad: a large part of "
            "the interval between two (checkpoint.interval too small, or a slow volume).",
            (Query(newest("grpo_checkpoint_seconds"), "seconds"),),
            Unit.SECONDS,
            width=6,
        ),
        Graph(
            "Scoring errors",
            "Completions that could not be scored since the job's start, by reason; they get no "
            "reward and are not trained on. Good: flat. Bad: rises with every step (a reward "
            "function that hangs or raises).",
            (Query(total("grpo_scoring_errors_total", "reason"), "{{reason}}"),),
            width=6,
            stacked=True,
        ),
        Graph(
            "Worker restarts",
            "Since the job's start, by role. A producer costs its completions under way; a "
            "consumer costs the steps since the newest checkpoint.",
            (Query(total("grpo_restarts_total", "role"), "{{role}}"),),
            width=6,
            stacked=True,
        ),
    ),
)
