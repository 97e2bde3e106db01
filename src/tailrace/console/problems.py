"""Problem documents (RFC 9457): the HTTP answer to each error, with the error's message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from tailrace import errors
from tailrace.errors import Damaged, Expected, Lost, OutOfRange, TailraceError, VersionConflict

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""The `Retry-After` of answers with the status 429 or 503."""

STATUS: dict[type[BaseException], int] = {
    errors.TooLarge: 413,
    errors.BadInput: 400,
    errors.Trimmed: 410,
    errors.IteratorExpired: 410,
    errors.NotThere: 404,
    errors.AlreadyThere: 409,
    errors.OutOfRange: 416,
    errors.Conflict: 409,
    errors.Busy: 409,
    errors.NotReady: 409,
    errors.Diverged: 409,
    errors.ForeignIndex: 409,
    errors.PositionLost: 410,
    errors.Rejected: 422,
    errors.BadItem: 422,
    errors.Undecodable: 422,
    errors.NotInstalled: 501,
    errors.OutcomeUnknown: 504,
    errors.TimedOut: 504,
    errors.DiskFull: 507,
    errors.StorageError: 503,
    errors.OutOfMemory: 503,
    errors.HomeError: 503,
    errors.MissingEvents: 503,
    errors.Closed: 503,
    errors.TailraceError: 500,
}
"""The status of each error class.  A class that is not here has the status of the nearest class it inherits from."""


class LostOffsets(msgspec.Struct, frozen=True):
    """Damaged offsets of a partition, from `first` to before `end`."""

    partition: int
    first: int
    end: int


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong, and what to do next.  Each field below `detail` is present if the error has it."""

    type: str
    title: str
    status: int
    detail: str
    floor: int | None = None
    """The lowest offset that is kept."""
    end: int | None = None
    """The offset of the next record to be appended."""
    stream: str | None = None
    version: int | None = None
    """The present version of the event stream."""
    actual: dict[str, int] | None = None
    """The next offset of each partition for which the client expected another one."""
    lost: list[LostOffsets] | None = None
    """Offsets that are damaged."""


class Refused(Exception):
    """A request that the server refuses without asking the home: wrong method, media type, token, Host."""

    def __init__(self, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.title, self.headers = status, title, dict(headers or {})


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Refused):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def problem_of(error: Exception, number: str = "") -> Problem:
    """Return an error as a problem document.  The message of an error that is not tailrace's stays in the server's log,
    under `number`."""
    if isinstance(error, Refused):
        return Problem(_urn(error.title), error.title, error.status, str(error))
    if not isinstance(error, TailraceError):
        detail = f"the server failed; its log says why, under {number}" if number else "the server failed"
        return Problem("urn:tailrace:failure", "Failure", 500, detail)
    name = type(error).__name__
    made = Problem(_urn(name), name, status_of(error), str(error))
    if isinstance(error, OutOfRange):
        made.floor, made.end = error.floor, error.end
    if isinstance(error, VersionConflict):
        made.stream, made.version = error.stream, error.version
    if isinstance(error, Expected):
        made.actual = {str(q): at for q, at in error.actual.items()}
    if isinstance(error, Damaged) and error.lost:
        made.lost = lost_offsets(error.lost)
    return made


def lost_offsets(lost: tuple[Lost, ...] | list[Lost]) -> list[LostOffsets]:
    """Return lost offsets as an answer has them."""
    return [LostOffsets(*one) for one in lost]


def answer(error: Exception, number: str = "") -> Response:
    """Return the response to an error."""
    made = problem_of(error, number)
    headers: dict[str, str] = dict(error.headers) if isinstance(error, Refused) else {}
    if made.status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    return Response(msgspec.json.encode(made), made.status, headers, MEDIA_TYPE)


def _urn(name: Any) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", str(name)).lower().split()
    return f"urn:tailrace:{'-'.join(words)}"
