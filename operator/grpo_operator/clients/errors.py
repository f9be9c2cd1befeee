"""Errors of the Kubernetes API: one class per meaning."""

import msgspec

_MAX_BODY = 500


class ApiError(Exception):
    """A call to the API server failed.

    `code` is the HTTP status, 0 without a response; `reason` and `message` are those of the
    response's Status object; `call` names the verb and the object of the call.
    """

    reached = 0
    """Objects of a creation that exist; it failed at the one after them."""

    def __init__(self, code: int, reason: str, message: str, call: str = "") -> None:
        self.code, self.reason, self.message, self.call = code, reason, message, call
        super().__init__(f"{code} {reason}: {message}")


class NotFoundError(ApiError):
    """The object does not exist."""


class UnknownKindError(NotFoundError):
    """The API server does not serve this kind of object."""


class ConflictError(ApiError):
    """The object has changed since it was read, or a quota has: read again and retry."""


class AlreadyExistsError(ConflictError):
    """An object of this name exists."""


class RefusedError(ApiError):
    """Over quota, denied by admission, or invalid: retrying it unchanged does not help."""


class ForbiddenError(RefusedError):
    """RBAC, a quota or an admission plugin forbids the call."""


class UnavailableError(ApiError):
    """Overloaded, restarting or unreachable, or the token was just renewed: retryable."""


def error_of(code: int, body: str, call: str = "") -> ApiError:
    """The error of a response with a status of 300 or more, whose body may be anything."""
    try:
        status = msgspec.json.decode(body, type=dict)
    except (msgspec.DecodeError, UnicodeError):
        status = {}
    reason, message = str(status.get("reason", "")), str(status.get("message", body[:_MAX_BODY]))
    return _class_of(code, reason, message, status)(code, reason, message, call)


def _class_of(code: int, reason: str, message: str, status: dict[str, object]) -> type[ApiError]:
    if code == 404:
        # Only a Status about an object has its name; a path that is not served has plain text.
        details = status.get("details")
        named = isinstance(details, dict) and details.get("name")
        return NotFoundError if named else UnknownKindError
    if code == 409:
        # Contention for a quota is a Conflict too, and then nothing was created.
        return AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    if code in (401, 429) or code >= 500:
        # A webhook that denies with 500 is no outage of the API server.
        denied = "admission webhook" in message and "denied the request" in message
        return RefusedError if denied else UnavailableError
    return ForbiddenError if code == 403 else RefusedError
