"""The `environment` reward: the environment that plays an episode has scored it already."""

import json
from collections.abc import Sequence

from ..messages import Row
from ..row_faults import RowFault, refuse, shown
from .base import Reward


class Environment(Reward):
    """Takes rows of any columns: `reset` of the environment reads them."""

    reads_row = True
    needs_messages = False

    def check(self, rows: Sequence[Row]) -> None:
        faults = [fault for row in rows if (fault := _not_json(row)) is not None]
        if faults:
            raise refuse(faults)


def _not_json(row: Row) -> RowFault | None:
    for name, value in row.columns.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            must = "must be a JSON value, as the environment receives it"
            return RowFault(row.source, must, shown(value), name)
    return None


REWARD = Environment
