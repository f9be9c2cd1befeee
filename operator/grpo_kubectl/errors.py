"""Errors of commands, as one line each, and the exit codes."""

from enum import IntEnum

from grpo_operator.clients.errors import ApiError, ForbiddenError, UnknownKindError


class Exit(IntEnum):
    """Exit codes of the plugin."""

    DONE = 0
    FAILED = 1
    ENDED_OTHERWISE = 3
    """`wait`: the job ended in another phase."""
    TIMED_OUT = 4
    USAGE = 64
    """The command line is invalid; `grpo` has the same code."""
    INTERRUPTED = 130


class CommandError(Exception):
    """One line for the user."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        self.code = code
        super().__init__(message)


def explain(error: ApiError | CommandError, server: str) -> str:
    """An error as one line that names the call and the fault."""
    if isinstance(error, CommandError):
        return str(error)
    message = " ".join(error.message.split())
    if error.code == 0:
        return f"no response from {server}: {message or error.reason}"
    if error.code == 401:
        return "the API server does not accept these credentials: log in again"
    if isinstance(error, ForbiddenError):
        return f"not permitted: {error.call}: {message}".rstrip(": ")
    if isinstance(error, UnknownKindError):
        return f"{error.call}: the API server does not serve this kind; is the CRD installed?"
    return f"refused: {error.call}: {message} ({error.code})"
