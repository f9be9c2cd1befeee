"""Which errors are outages: of the network, a model hub, a disk or memory."""

import errno
from collections.abc import Iterator

_ACCESS_REFUSED = frozenset({401, 403, 404})
"""Answers of a model hub that say: not yours, or not there."""
_OUTAGE_ERRNOS = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT, errno.EAGAIN),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBUSY),
    }
)
_OUTAGE_TYPES = frozenset(
    {
        *("ConnectionError", "ConnectTimeout", "ReadTimeout", "Timeout", "ConnectError"),
        *("ChunkedEncodingError", "ProxyError", "SSLError", "gaierror"),
        *("IncompleteRead", "ProtocolError", "MaxRetryError", "NewConnectionError"),
    }
)
"""Names, as the libraries that define them are not imported here."""


def is_outage(error: BaseException) -> bool:
    """Whether an error, or one behind it, is an outage of network, hub, disk or memory.

    Such a failure is retryable. A hub that refuses access or lacks the file (401, 403, 404) is
    not an outage, nor is a missing cache entry where the user has turned the hub off.
    """
    chain = tuple(_chain(error))
    statuses = [status for link in chain if (status := _http_status(link)) is not None]
    if any(status in _ACCESS_REFUSED for status in statuses):
        return False
    if any(type(link).__name__ == "OfflineModeIsEnabled" for link in chain):
        return False  # a ConnectionError by its type
    if any(status == 429 or status >= 500 for status in statuses):
        return True
    return any(_is_outage_itself(link) for link in chain)


def _is_outage_itself(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | MemoryError):
        return True
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _OUTAGE_TYPES:
        return True
    return isinstance(error, OSError) and error.errno in _OUTAGE_ERRNOS


def _http_status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
