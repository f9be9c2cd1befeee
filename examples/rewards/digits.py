"""A reward for sums: the share of right digits, plus 1 for a right answer.

`examples/custom-reward.yaml` uses it. The trainer calls it in separate processes, with a deadline
for each completion; it may keep state in the module, and import any library of the image.
"""

import re
from typing import Any

_BOXED = re.compile(r"\\boxed\{(\d+)\}\s*$")
NO_ANSWER = {"reward": 0.0, "accuracy": 0.0, "format_accuracy": 0.0}


def reward(completion: str, row: dict[str, Any]) -> dict[str, float]:
    """`completion` is the completion as text; `row` has all columns, and the reference as
    `answer`."""
    boxed = _BOXED.search(completion)
    if boxed is None:
        return NO_ANSWER
    given, answer = boxed[1], row["answer"]
    # From the right: units are compared with units, tens with tens.
    places = zip(reversed(given), reversed(answer), strict=False)
    share = sum(a == b for a, b in places) / max(len(given), len(answer))
    right = float(given == answer)
    return {"reward": share + right, "accuracy": right, "format_accuracy": 1.0}
