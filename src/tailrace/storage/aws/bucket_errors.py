"""Bucket errors: translates obstore's errors.  Most share one class and differ in their text, so the text is read."""

from __future__ import annotations

import re

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from tailrace.errors import (
    BadInput,
    HomeError,
    ObjectMissing,
    TailraceError,
    Throttled,
    TimedOut,
    Unavailable,
)
from tailrace.storage.aws.session import BAD_CREDENTIALS

NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
BUSY = {"SlowDown", "ServerBusy", "TooManyRequests"}
NOT_ACCEPTED = BAD_CREDENTIALS | {"InvalidAccessKeyId", "InvalidToken", "RequestTimeTooSkewed"}


def translated(error: Exception, where: str, name: str) -> TailraceError:
    """The tailrace error for one of obstore's; its message repeats no part of a signature."""
    text = str(error)
    status = int(_first(r"non-2xx status code: (\d+)", text) or 0)
    code = _first(r"<Code>(\w+)</Code>", text)
    return (
        _about_the_home(error, text, status, code, where)
        or _about_the_object(error, text, name)
        or _about_the_way(text, status, code, f"{where}, object {name!r}")
    )


def only_whole(error: BaseError) -> bool:
    """Whether a bucket's error means that an object cannot be read by these ranges: it ends before one begins, or the
    server does not support ranges."""
    return bool(re.search("non-2xx status code: 416|StartTooLarge|NotPartial", str(error)))


def _about_the_home(error: Exception, text: str, status: int, code: str, where: str) -> TailraceError | None:
    if code in NO_BUCKET or "The specified bucket does not exist" in text:
        bucket = "/".join(where.split("/")[:3])
        return HomeError(
            f"there is no bucket for {where}; make it (on S3: `aws s3 mb {bucket}`), then "
            f"`tailrace home create {where}`"
        )
    if code in NOT_ACCEPTED or isinstance(error, UnauthenticatedError) or status == 401:
        return HomeError(f"{where}: the credentials are not accepted ({code or status}); renew them, check the clock")
    if isinstance(error, PermissionDeniedError) or status == 403:
        return HomeError(f"{where}: the credentials in use may not do this; allow them to list, read, write and delete")
    if "BareRedirect" in text:
        return HomeError(f"{where}: the bucket is in another region; set AWS_REGION, or `region=…` in the home's URL")
    return None


def _about_the_object(error: Exception, text: str, name: str) -> TailraceError | None:
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(name)
    if isinstance(error, ValueError) and not isinstance(error, BaseError):
        return BadInput(f"object {name!r}: {_head(text)}")
    return None


def _about_the_way(text: str, status: int, code: str, what: str) -> TailraceError:
    if code in BUSY or status == 429:
        return Throttled(f"{what}: refused for now ({code or status})")
    if "kind: Connect," in text:
        return Unavailable(f"{what}: cannot connect")
    if re.search(r"HttpError \{\s*kind: \w+", text):
        return TimedOut(f"{what}: sent, but not answered in full; it may have happened")
    return Unavailable(f"{what}: {_head(text)}")


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""


def _head(text: str) -> str:
    return text.split("\n", 1)[0][:300]
