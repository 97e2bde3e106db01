"""Errors of a cluster and its client, as tailrace's errors.

`Unavailable`, `Throttled` and `TimedOut` are for what passes by itself: no connection, a full queue, a node that
restarts.  `NotReady` is for what somebody must mend: a password, a missing right, a block, a certificate.  No message
repeats a document or a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.errors import Conflict, NotReady, NotThere, TailraceError, Throttled, TimedOut, TooLarge, Unavailable

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of requests that the cluster refuses only for now."""
MAPPING = frozenset({
    "mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping_exception",
    "illegal_argument_exception", "parsing_exception",
})  # fmt: skip
_LIMITS = {
    "total fields": ("total_fields", 5000),
    "mapping depth": ("depth", 50),
    "nested fields": ("nested_fields", 200),
}
"""The limits of a mapping: how an error calls each, and its setting with a value above the default."""
BLOCKED = "cluster_block_exception"


def reason_of(error: Any) -> tuple[str, str]:
    """The type and the reason of an error that the cluster reports, on one line.  For an error of a mapping the cause
    is left out: it repeats the value."""
    if not isinstance(error, Mapping):
        return "", _short(str(error))
    cause = error.get("caused_by")
    said = _short(str(error.get("reason") or ""))
    kind = str(error.get("type") or "")
    if kind not in MAPPING and isinstance(cause, Mapping) and cause.get("reason") and str(cause["reason"]) not in said:
        said = f"{said}: {_short(str(cause['reason']))}"
    return kind, said


def _short(text: str) -> str:
    """A shortened reason, without the preview of the field's value with which some reasons end."""
    return " ".join(text.partition("Preview of field's value")[0].split())[:400].rstrip(" .")


def failed(error: Exception, where: str, doing: str, index: str = "") -> TailraceError:
    """tailrace's error for an error of the client.  `doing` says what was attempted, `index` on which index."""
    from opensearchpy import exceptions as client

    what = f"OpenSearch at {where}, {doing}"
    if isinstance(error, client.SSLError):
        return _insecure(str(error.info), what)
    if isinstance(error, client.ConnectionTimeout):
        return TimedOut(f"{what}: sent, but not answered in time; a longer timeout = … waits longer")
    if isinstance(error, client.ConnectionError):
        return _unreached(error, what)
    if isinstance(error, client.TransportError):
        given = error.info.get("error") if isinstance(error.info, dict) else None
        kind, reason = reason_of(given if given is not None else error.error)
        return refused(int(error.status_code), kind, reason, what, index)
    return NotReady(f"{what}: {type(error).__name__}: {_short(str(error))}")


def _insecure(said: str, what: str) -> TailraceError:
    if "WRONG_VERSION_NUMBER" in said or "record layer failure" in said:
        return NotReady(f"{what}: the server there speaks http, not https; begin the uri with http://")
    if "CERTIFICATE_VERIFY" in said:
        return NotReady(
            f"{what}: its certificate is not trusted, or is of another name ({_certificate(said)}); ca = … names the "
            "authority's PEM file"
        )
    return Unavailable(f"{what}: no secure connection ({_certificate(said)})")


def _certificate(said: str) -> str:
    return said.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or _short(said)


def _unreached(error: Any, what: str) -> TailraceError:
    said = str(error.info)
    if "certificate" in said.lower():
        return _insecure(said, what)
    if "NameResolution" in type(error.info).__name__:
        return Unavailable(f"{what}: no such host; is the uri right?")
    kind = "refused" if "refused" in said else type(error.info).__name__
    hint = "is it running there, and is it http or https as in the uri?"
    return Unavailable(f"{what}: cannot connect ({kind}); {hint}")


def refused(status: int, kind: str, reason: str, what: str, index: str = "") -> TailraceError:
    """tailrace's error for an answer with this status."""
    said = f"{what}: {kind or status}" + (f": {reason}" if reason else "")
    if status == 401:
        return NotReady(f"{what}: it does not accept user and password, or the API key, in the settings")
    if kind == BLOCKED:
        return _blocked(said, reason, index)
    if status == 403:
        return NotReady(f"{said}; give its role the right on {index or 'the cluster'}")
    if status == 413:
        return TooLarge(f"{said}; http.max_content_length of the cluster is less than that")
    if status in BUSY:
        return Throttled(f"{said}; refused for now")
    if status >= 500:
        return Unavailable(said)
    if status == 404:
        return NotThere(said)
    if status == 409:
        return Conflict(said)
    return NotReady(said + raised_limit(reason, index))


def raised_limit(reason: str, index: str) -> str:
    """Advice for a limit of an index's mapping; "" for other reasons."""
    for limit, (setting, more) in _LIMITS.items():
        if f"Limit of {limit}" in reason:
            return f'; PUT /{index or "…"}/_settings {{"index.mapping.{setting}.limit": {more}}} allows more'
    return ""


def _blocked(said: str, reason: str, index: str) -> TailraceError:
    """The error for an index that takes no writes: `Throttled` if a disk is full, which the cluster ends by itself once
    there is room, `NotReady` if its settings block it."""
    if "flood-stage" in reason or "allow delete" in reason or "disk usage" in reason:
        return Throttled(f"{said}; the disk of a node is full: make room, and the cluster lifts the block")
    names = '"index.blocks.read_only": null, "index.blocks.write": null'
    return NotReady(f"{said}; the index is read-only: PUT /{index or '…'}/_settings {{{names}}} lifts the block")
