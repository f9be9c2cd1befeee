"""What a command says when it cannot do its work, and the exit codes."""

import json
from enum import IntEnum


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    """The command line is wrong."""
    ENDED_OTHERWISE = 3
    """`wait`: the job is over, and not as asked."""
    TIMED_OUT = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """One line for the user."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        self.code = code
        super().__init__(message)


class NotFoundError(CommandError):
    """The object does not exist; its kind does."""


class ForbiddenError(CommandError):
    """The user may not do it."""


def refusal(verb: str, what: str, code: int, body: str) -> CommandError:
    """The API server's refusal of `verb` on `what`, as a line that says what to mend."""
    try:
        status = json.loads(body)
    except ValueError:
        status = {}
    message = " ".join(str(status.get("message") or body[:300]).split())
    if code == 401:
        return CommandError("the API server does not accept these credentials: log in again")
    if code == 403:
        return ForbiddenError(f"not permitted: {verb} {what}: {message}")
    if code == 404 and status.get("details", {}).get("name"):
        return NotFoundError(message)
    if code == 404:
        return CommandError(f"the API server does not know {what}: is it installed there?")
    return CommandError(f"refused: {verb} {what}: {message} ({code})")


def unreachable(server: str, error: BaseException) -> CommandError:
    """No answer from the API server."""
    return CommandError(f"no answer from {server}: {str(error) or type(error).__name__}")
