"""Errors of the library deltalake, as tailrace's errors, with advice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.adaptors.lake.table import Raced
from tailrace.errors import NotReady, TailraceError, Unavailable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m|[↳\s]+")
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden", "401 Unauthorized",
           "Unauthorized", "ExpiredToken", "lacked valid authentication", "PermissionDenied")  # fmt: skip
_NO_CREDENTIALS = (
    "no credentials",
    "Missing credentials",
    "CredentialsNotLoaded",
    "failed to load IAM",
    "ailed to get AWS credentials",
)
_MAX_ERROR_CHARACTERS = 400


def said(error: BaseException) -> str:
    """The text of the library's error, on one line and shortened."""
    text = _COLOURS.sub(" ", str(error)).strip()
    return text if len(text) <= _MAX_ERROR_CHARACTERS else f"{text[:_MAX_ERROR_CHARACTERS]}…"


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise the library's errors as tailrace's: `Raced`, `NotReady` or `Unavailable`."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

    try:
        yield
    except (TailraceError, Raced):
        raise
    except CommitFailedError as error:
        raise Raced(said(error)) from None
    except DeltaProtocolError as error:
        raise NotReady(
            f"{place}: {said(error)}; the table asks for a feature that the library deltalake cannot write: write "
            "into another path, or turn the feature off"
        ) from None
    except SchemaMismatchError as error:
        raise NotReady(f"{place}: {said(error)}; another program has changed its columns: run again") from None
    except (DeltaError, OSError, ValueError) as error:
        raise failed(place, error) from None
    except Exception as error:
        if type(error) is not Exception and not type(error).__module__.startswith("_internal"):
            raise
        raise failed(place, error) from None


def failed(place: str, error: BaseException) -> TailraceError:
    """tailrace's error for an error of the library, with advice."""
    text = said(error)
    if "NoSuchBucket" in text or "bucket does not exist" in text:
        return NotReady(f"{place}: there is no such bucket; make it, or name another path")
    if any(one in text for one in _NO_CREDENTIALS):
        return NotReady(f"{place}: no credentials were found; set them in the environment, or in storage_options")
    if any(one in text for one in _DENIED):
        return NotReady(f"{place}: refused: {text}; check the credentials and what they may do")
    if "Permission denied" in text or "Read-only file system" in text:
        return NotReady(f"{place}: {text}; give this user the right to it")
    if "No space left" in text or "os error 28" in text:
        return Unavailable(f"disk full: {place} takes nothing more; free some space")
    return Unavailable(f"{place}: {text}")
