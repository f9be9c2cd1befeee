"""The system message that asks for the form of completion a reward can read."""

from ..spec.training import RewardSpec, RewardType

_DEFAULTS = {
    RewardType.THINK_ANSWER_TAGS: (
        "Work through the user's problem before you answer. Write your reasoning between <think> "
        "and </think>, then only the final answer between <answer> and </answer>, and end there: "
        "<think>your reasoning</think><answer>your answer</answer>"
    ),
    RewardType.BOXED: (
        "Reason step by step, then finish with the final answer alone inside \\boxed{}."
    ),
    RewardType.CODE: (
        "Solve the problem with a Python program. Explain as much as you need, then end with one "
        "code block that opens with ```python and holds the complete program."
    ),
    RewardType.CUSTOM: "",
}


def system_prompt(reward: RewardSpec) -> str:
    """The system message of every prompt: the spec's, or the reward type's own; empty is none."""
    return _DEFAULTS[reward.type] if reward.system_prompt is None else reward.system_prompt
