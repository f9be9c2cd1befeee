"""How a run fails: by its input, which a user can fix, or by a fault that a retry may survive."""

from collections.abc import Iterable

from .spec.faults import Fault, forbidden, invalid, required

__all__ = [
    "Fault",
    "InvalidDataError",
    "InvalidInputError",
    "RunFailedError",
    "forbidden",
    "invalid",
    "required",
]


class InvalidInputError(ValueError):
    """The spec, the data or the model's files are invalid: a retry would fail again.

    The message has one line for each fault. For a field use `invalid`, `required` or `forbidden`.
    """

    def __init__(self, faults: str | Fault | Iterable[str | Fault]) -> None:
        each = (faults,) if isinstance(faults, str | Fault) else faults
        self.faults = tuple(str(fault) for fault in each)
        super().__init__("\n".join(self.faults))


class InvalidDataError(InvalidInputError):
    """Rows of a data set are invalid; each fault names file and row."""


class RunFailedError(RuntimeError):
    """The run failed, and a retry may succeed. The message is complete: no traceback is needed."""
