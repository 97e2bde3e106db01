"""Stored events: an `Event` as the maps in `e` and `u` of an item, and back; their sizes and checksums.

event    t, D?, d?, M?, m?, x?, y?     as in the document, and id, which makes an append idempotent
unfold   i, c, t, D?, d?, M?, m?       as in the document, and k: its crc32c
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import crc32c
import msgspec

from tailrace.errors import Damaged
from tailrace.events.event import Event
from tailrace.events.payload import Compression, expand, squeeze
from tailrace.storage.sqlite.codec import members

Stored: TypeAlias = Mapping[str, Any]
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def stored_event(event: Event, id: str, time: str, how: Compression) -> dict[str, Any]:
    """The map of one event."""
    out: dict[str, Any] = {"t": time, "id": event.id or id}
    if event.data or event.meta:
        _payload(out, event, how)
    if event.correlation:
        out["x"] = event.correlation
    if event.causation:
        out["y"] = event.causation
    return out


def stored_unfold(unfold: Event, time: str, how: Compression) -> dict[str, Any]:
    """The map of one unfold; its index and checksum are added when its version is known."""
    out: dict[str, Any] = {"c": unfold.type, "t": time}
    _payload(out, unfold, how)
    return out


def _payload(out: dict[str, Any], event: Event, how: Compression) -> None:
    for value, name, encoding in (event.data, "d", "D"), (event.meta, "m", "M"):
        if value:
            code, out[name] = squeeze(value, how)
            if code:
                out[encoding] = code


def at_version(unfold: Stored, version: int) -> dict[str, Any]:
    """The map of an unfold, completed with the version of its stream that it is derived from."""
    placed = {**unfold, "i": version}
    return {**placed, "k": crc32c.crc32c(_encode(placed))}


def seed(stream: str, first: int) -> int:
    """The checksum of no events, at this place of this stream."""
    return crc32c.crc32c(f"{stream}/{first}".encode())


def chained(k: int, c: Iterable[str], e: Iterable[Stored]) -> int:
    """The checksum of events that follow others, whose checksum is k."""
    return crc32c.crc32c(members(_encode(list(zip(c, e, strict=True)))), k)


# --- sizes, by the document's estimates ---
def _length(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())


def event_size(type: str, e: Stored) -> int:
    """The bytes that one event counts for."""
    size = _length(type) + 40
    for name in "dmxy":
        if name in e:
            size += _length(e[name])
    return size


def events_size(c: Sequence[str], e: Sequence[Stored]) -> int:
    """The bytes that some events count for."""
    return sum(map(event_size, c, e))


def unfolds_size(u: Sequence[Stored]) -> int:
    """The bytes that some stored unfolds count for."""
    if not u:
        return 0
    return sum(_length(one["c"]) + 50 + sum(_length(one[name]) for name in "dm" if name in one) for one in u)


# --- reading ---
def read_events(stream: str, c: Sequence[str], e: Sequence[Stored], first: int) -> list[Event]:
    """Stored events, of which the first has this index."""
    out = []
    for index, (type, one) in enumerate(zip(c, e, strict=True), first):
        if len(one) == 3 and "d" in one and "id" in one and "t" in one:  # most events have just these
            out.append(Event(type, one["d"], b"", one["id"], "", "", one["t"], index))
            continue
        get = one.get
        data, meta = get("d", b""), get("m", b"")
        if "D" in one or "M" in one:
            data, meta = expand(get("D", 0), data, stream, index), expand(get("M", 0), meta, stream, index)
        out.append(Event(type, data, meta, get("id", ""), get("x", ""), get("y", ""), get("t", ""), index))
    return out


def read_unfolds(stream: str, u: Iterable[Stored]) -> list[Event]:
    """Stored unfolds."""
    return [
        Event(
            one["c"],
            expand(one.get("D", 0), one.get("d", b""), stream, one["i"]),
            expand(one.get("M", 0), one.get("m", b""), stream, one["i"]),
            time=one.get("t", ""),
            index=one["i"],
            unfold=True,
        )
        for one in u
    ]


def check_unfold(stream: str, one: Stored) -> None:
    """Compare a stored unfold with its checksum; `Damaged` if it is not what was written."""
    try:
        plain = {name: value for name, value in one.items() if name != "k"}
        if one["i"] < 0 or not one["c"] or ("k" in one and one["k"] != crc32c.crc32c(_encode(plain))):
            raise ValueError("its checksum differs")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"an unfold of stream {stream!r} is not what was written: {error!r}", where=stream) from error
