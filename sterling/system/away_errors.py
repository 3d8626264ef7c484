"""Errors of a service that is away for a while: it is worth asking it again."""

from __future__ import annotations

import errno

LASTING = (  # errors of the operating system that do not pass
    ValueError,  # such as an invalid address in requests, or a certificate
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)
LASTING_NUMBERS = (errno.ENAMETOOLONG, errno.E2BIG, errno.ELOOP, errno.EINVAL)


class Away(Exception):
    """Raise this in a verifier, judge or tool whose service is away: it is asked again later."""


def is_away(error: BaseException) -> bool:
    """Whether an exception says that a service is away for a while: :class:`Away`, an HTTP answer
    429 or 5xx, a timeout, a connection that failed or another passing OSError, or an exception that
    was raised from one of these."""
    link: BaseException | None = error
    while link is not None:
        status = _http_status(link)
        if status is not None:
            return status == 429 or 500 <= status < 600
        if isinstance(link, Away) or (isinstance(link, OSError) and _passes(link)):
            return True
        link = link.__cause__
    return False


def _passes(error: OSError) -> bool:
    return not isinstance(error, LASTING) and error.errno not in LASTING_NUMBERS


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an exception of urllib, requests, httpx or openai holds."""
    response = getattr(error, "response", None)
    named = [(error, "code"), (error, "status_code"), (error, "status"), (response, "status_code")]
    found = (getattr(each, name, None) for each, name in named)
    return next((each for each in found if type(each) is int and 100 <= each < 600), None)
