"""Errors that a user can mend, as opposed to faults of the infrastructure."""

from collections.abc import Iterable


class InvalidInputError(ValueError):
    """Spec, data or model files are unfit; no retry mends it. One line per fault."""

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class InvalidDataError(InvalidInputError):
    """Rows of a data set are unfit; each fault names file and row."""
