r"""The `boxed` reward: the answer is the last balanced `\boxed{...}`."""

from .extraction import Extraction, boxes
from .mathematics import MathReward


class Boxed(MathReward):
    """A right answer is rewarded if it is in a box."""

    system_prompt = "Reason step by step, then finish with the final answer alone inside \\boxed{}."

    markers = (r"\boxed{",)

    def extract(self, text: str) -> Extraction:
        return boxed_answer(text)


def boxed_answer(text: str) -> Extraction:
    r"""The last balanced `\boxed{...}`; well-formed if it is not empty."""
    found = boxes(text)
    marked = found[-1].strip() if found else ""
    return Extraction(marked or None, bool(marked))


REWARD = Boxed
