"""The lower rows of the job dashboard: pipeline, policy update, checkpoints and faults."""

from panels import Color, Graph, Levels, Query, Row, Unit, low_is_good
from series import newest, rate, total

_STALENESS = "grpo_staleness_versions"


def _staleness_quantile(quantile: float) -> str:
    """A quantile in whole versions: fractions come from the interpolation between buckets."""
    return f"ceil(histogram_quantile({quantile}, {rate(f'{_STALENESS}_bucket', 'le')}))"


PIPELINE = Row(
    "Buffer, staleness and weights",
    (
        Graph(
            "Buffer",
            "Scored groups in the buffer at the end of each step. Always empty: consumers wait, as "
            "always with maxStaleness 0. Never empty: producers wait, because the capacity or "
            "maxStaleness is reached.",
            (
                Query(newest("grpo_buffer_depth"), "groups"),
                Query(newest("grpo_buffer_capacity"), "capacity"),
            ),
            width=6,
        ),
        Graph(
            "Staleness",
            "Weight versions between sampling and training, per group. Never above "
            "buffer.maxStaleness. Good: low. High with many clipped tokens: lower maxStaleness. "
            "Quantiles above 2 are interpolated between 4, 8 and 16.",
            (
                Query(_staleness_quantile(0.5), "median"),
                Query(_staleness_quantile(0.95), "95 %"),
                Query(f"{rate(f'{_STALENESS}_sum')} / {rate(f'{_STALENESS}_count')}", "mean"),
            ),
            width=6,
        ),
        Graph(
            "Weight transfer",
            "Time to publish the newest weight version, and for producers to apply it. Good: the "
            "sum is below the time of a step, because the transfer overlaps training.",
            (
                Query(newest("grpo_weight_publish_seconds"), "publish"),
                Query(newest("grpo_weight_apply_seconds"), "apply"),
            ),
            Unit.SECONDS,
            width=6,
        ),
        Graph(
            "Weight deltas",
            "With weightTransport delta: bytes of the newest version as a share of a full one, and "
            "versions that were fetched in full because a checksum differed. Good: a few percent, "
            "and none. Near 1: most weights change in a step; use another transport.",
            (
                Query(newest("grpo_weight_delta_ratio"), "share"),
                Query(newest("grpo_weight_differences_total"), "differences"),
            ),
            width=6,
        ),
        Graph(
            "Weight version",
            "Newest published version: one per step. Flat: no step completes.",
            (Query(newest("grpo_weight_version"), "version"),),
            width=6,
        ),
        Graph(
            "Engine mismatch",
            "Difference of log-probabilities between trainer and engine at equal weights, in nats "
            "per token. Good: below 1e-4 in float32, below 0.05 in bfloat16. A jump: an engine did "
            "not apply all weights.",
            (Query(newest("grpo_engine_mismatch"), "mismatch"),),
            width=6,
        ),
    ),
)

UPDATE = Row(
    "Policy update",
    (
        Graph(
            "Loss",
            "Small and around 0 by construction: the advantages of a group sum to 0. It does not "
            "measure learning; a jump or a gap (not a number) indicates a fault.",
            (Query(newest("grpo_loss"), "loss"),),
            width=6,
        ),
        Graph(
            "Gradient norm",
            "Before clipping. Good: the same order of magnitude throughout. Bad: spikes or growth "
            "(lower the learning rate). 0: steps without a learning signal.",
            (Query(newest("grpo_gradient_norm"), "norm"),),
            width=6,
        ),
        Graph(
            "Learning rate",
            "A cosine from its peak to a tenth of it.",
            (Query(newest("grpo_learning_rate"), "rate"),),
            width=6,
        ),
        Graph(
            "KL from the reference policy",
            "Estimate per token; 0 when klCoefficient is 0, without a reference policy. Good: "
            "grows slowly. Above 1 the policy is far from the reference: lower the learning rate "
            "or raise klCoefficient.",
            (Query(newest("grpo_kl"), "KL"),),
            levels=low_is_good(0.5, 1.0),
            width=6,
        ),
        Graph(
            "Entropy",
            "Nats per token. Good: falls slowly. Bad: collapses to near 0 early (all completions "
            "of a group are alike and carry no signal: raise clipHigh or the temperature), or "
            "rises (the policy degenerates).",
            (Query(newest("grpo_entropy"), "entropy"),),
        ),
        Graph(
            "Clipped tokens",
            "Share of tokens whose importance ratio was clipped, below and above, and with a "
            "correction of those whose weight was truncated or masked. Good: a few percent at "
            "most. Bad: above 20 %: steps too large or samples too stale.",
            (
                Query(newest("grpo_clip_ratio", "side"), "{{side}}"),
                Query(newest("grpo_bounded_weight_ratio"), "bounded weight"),
            ),
            Unit.SHARE,
            low_is_good(0.1, 0.2),
        ),
        Graph(
            "Importance ratio",
            "Mean ratio between the policy and the behaviour policy. Good: 1. Different from 1 at "
            "staleness 0: engine and trainer disagree on log-probabilities.",
            (Query(newest("grpo_importance_ratio_mean"), "ratio"),),
            levels=Levels(Color.RED, ((0.9, Color.GREEN), (1.1, Color.RED))),
            decimals=3,
        ),
        Graph(
            "Distance from the behaviour policy",
            "KL divergence per token from the policy that sampled to the one that is trained, and "
            "standard deviation and maximum of the log of the importance ratio. Good: near 0. "
            "Rises: samples too stale (lower maxStaleness) or steps too large.",
            (
                Query(newest("grpo_behaviour_kl"), "KL"),
                Query(newest("grpo_log_importance_ratio", "statistic"), "log ratio, {{statistic}}"),
            ),
            decimals=3,
        ),
        Graph(
            "Effective sample size",
            "Of the importance ratios, as a share of the tokens. Good: near 1. Bad: below 0.5: few "
            "tokens carry the gradient.",
            (Query(newest("grpo_effective_sample_ratio"), "share"),),
            Unit.SHARE,
            Levels(Color.RED, ((0.5, Color.YELLOW), (0.8, Color.GREEN))),
        ),
        Graph(
            "Values that are not finite",
            "Tokens and completions per second that are masked because the engine reported no "
            "finite log-probability, and steps that are skipped because their gradients are not "
            "finite. Good: 0. Otherwise the engine or the weights are broken.",
            (
                Query(rate("grpo_nonfinite_logprobs_total", "unit"), "{{unit}}"),
                Query(rate("grpo_nonfinite_steps_total"), "steps"),
            ),
            Unit.PER_SECOND,
        ),
    ),
)

FAULTS = Row(
    "Checkpoints and faults",
    (
        Graph(
            "Steps at risk",
            "Steps since the newest checkpoint: lost when a consumer or the driver is lost.",
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
            "Time to write the newest checkpoint; training waits for it. Bad: a large share of the "
            "time between two checkpoints (checkpoint.interval too small, or a slow volume).",
            (Query(newest("grpo_checkpoint_seconds"), "seconds"),),
            Unit.SECONDS,
            width=6,
        ),
        Graph(
            "Scoring errors",
            "Completions that could not be scored, as a share of the trained completions, by "
            "reason. They get no reward and are left out of training. Good: 0. Bad: above 5 %: the "
            "reward function raises, or exceeds its timeout.",
            (
                Query(
                    f"{rate('grpo_scoring_errors_total', 'reason')}"
                    f" / scalar({rate('grpo_samples_total')})",
                    "{{reason}}",
                ),
            ),
            Unit.SHARE,
            low_is_good(0.01, 0.05),
            width=6,
        ),
        Graph(
            "Restarts",
            "Restarts of workers since the start of the job, by role. A lost producer costs its "
            "completions in progress; a lost consumer costs the steps since the newest checkpoint.",
            (Query(total("grpo_restarts_total", "role"), "{{role}}"),),
            width=6,
            stacked=True,
        ),
    ),
)
