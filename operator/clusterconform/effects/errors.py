"""Our names for what the API server said.

The status codes are sorted by what the caller can do about them, and 422 is two things: a lost ``test`` of a
JSON patch comes without causes, a refused value with them (node-facts §5).
"""

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """The API server did not do what was asked; the text is its own message."""

    retry_after: float | None = None


class UnreachableError(ApiError):
    """No answer that means anything: refused connection, timeout, 5xx. It may have been done or not."""


class BusyError(ApiError):
    """429: try again after ``retry_after`` seconds."""


class ForbiddenError(ApiError):
    """403: a right is missing, or an admission policy said no; the message names which."""


class UnauthorizedError(ApiError):
    """401: the credentials are not accepted (any more)."""


class NotFoundError(ApiError):
    """404: no such object."""


class GoneError(ApiError):
    """410: the resource version or the continue token is too old; list again from the beginning."""


class ConflictError(ApiError):
    """409, or a lost test: the object is not what the request was built on; read it again."""


class RejectedError(ApiError):
    """The request as such is refused and will be again: 400, 413, 415, 422 with causes and the like."""


class FencedError(ApiError):
    """Not sent: we may not write now."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnreachableError,
    409: ConflictError,
    410: GoneError,
    429: BusyError,
}


def error_of(status: int, answer: Mapping[str, Any], retry_after: str | None = None) -> ApiError:
    """The error for HTTP ``status`` with the Status object ``answer`` (empty where the body was none).

    Args:
        status: HTTP status code, 400 or above.
        answer: The body as JSON values.
        retry_after: The Retry-After header in seconds, if there is one.
    """
    message = str(answer.get("message") or f"HTTP status {status}")
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    if status == 422 and not causes:  # noqa: PLR2004 - see above
        kind: type[ApiError] = ConflictError
    elif status >= 500:  # noqa: PLR2004 - the whole class
        kind = UnreachableError
    else:
        kind = _BY_STATUS.get(status, RejectedError)
    error = kind(message)
    if retry_after is not None and retry_after.isdigit():
        error.retry_after = float(retry_after)
    return error
