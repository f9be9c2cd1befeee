"""The `think_answer_tags` reward: the answer is the last `<answer>...</answer>`."""

from .extraction import Extraction
from .mathematics import MathReward

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


class ThinkAnswerTags(MathReward):
    """A right answer is rewarded if the completion reasons, then answers, each between its tags."""

    system_prompt = (
        "Work through the user's problem before you answer. Write your reasoning between <think> "
        "and </think>, then only the final answer between <answer> and </answer>, and end there: "
        "<think>your reasoning</think><answer>your answer</answer>"
    )
    markers = _TAGS
    stop_strings = ("</answer>",)

    def extract(self, text: str) -> Extraction:
        return think_answer(text)


def think_answer(text: str) -> Extraction:
    """The last `<answer>...</answer>`.

    Well-formed: each of the four tags exactly once, in order, followed by white space alone.
    """
    positions = [text.find(tag) for tag in _TAGS]
    well_formed = (
        all(text.count(tag) == 1 for tag in _TAGS)
        and positions == sorted(positions)
        and text.rstrip().endswith(_TAGS[-1])
    )
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    marked = text[start + len("<answer>") : end].strip() if start >= 0 else ""
    return Extraction(marked or None, well_formed)


REWARD = ThinkAnswerTags
