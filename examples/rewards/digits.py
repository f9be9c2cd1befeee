"""A reward for sums that pays for every right digit, and again as much for a right answer.

`examples/custom-reward.yaml` uses it. The trainer calls it in processes of its own, each completion
with a deadline; it may keep state in the module, and import what the image has.
"""

import re
from typing import Any

_BOXED = re.compile(r"\\boxed\{(\d+)\}\s*$")
NOTHING = {"reward": 0.0, "accuracy": 0.0, "format_accuracy": 0.0}


def reward(completion: str, row: dict[str, Any]) -> dict[str, float]:
    """`completion` is the completion as text; `row` has all columns, and the reference as
    `answer`."""
    boxed = _BOXED.search(completion)
    if boxed is None:
        return NOTHING
    said, answer = boxed[1], row["answer"]
    # From the right, so that a digit is compared with the one of its own place.
    places = zip(reversed(said), reversed(answer), strict=False)
    share = sum(a == b for a, b in places) / max(len(said), len(answer))
    right = float(said == answer)
    return {"reward": share + right, "accuracy": right, "format_accuracy": 1.0}
