"""Events: what happened, as a type, some bytes and their origin; and the names of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tailrace.errors import BadEvent, BadInput, BadName

MAX_ID_BYTES = 128


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event.  You give a type and data; an event that was read has the rest as well.

    An `id` makes an append idempotent across processes; without one, the append makes one.  An unfold is a derived
    event, a snapshot for example, that is kept with the stream's Tip and replaced by every write."""

    type: str
    data: bytes = b""
    meta: bytes = b""
    id: str = ""
    correlation: str = ""
    """The id of the conversation that this event is part of."""
    causation: str = ""
    """The id of what caused this event."""
    time: str = ""
    """When it was written, in ISO 8601."""
    index: int = -1
    """Its place in the stream, from 0; for an unfold, the version from which it was derived."""
    unfold: bool = False


def check_events(stream: str, given: Iterable[Event]) -> Sequence[Event]:
    """Several events, in order; refuses anything but a list of events, with an example of one."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return given
    if isinstance(given, Event):
        raise BadEvent(f"stream {stream!r} takes a list of events, not one: [Event({given.type!r}, …)]")
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise BadEvent(
            f"stream {stream!r} takes a list of events, not a {type(given).__name__}: [Event(type, data), …]"
        )
    return list(given)


def check_event(stream: str, event: Event) -> None:
    """Refuse a name that could not be stored, or that would be ambiguous."""
    texts = type(event) is Event and type(event.id) is type(event.correlation) is type(event.causation) is str
    named = texts and type(event.type) is str and event.type and len(event.id) <= MAX_ID_BYTES // 4
    if not (named and type(event.data) is type(event.meta) is bytes):
        _look_closer(stream, event)


def _look_closer(stream: str, event: Event) -> None:
    if not isinstance(event, Event):
        raise BadEvent(f"stream {stream!r} takes events, not a {type(event).__name__}: Event(type, data)")
    if not isinstance(event.type, str) or not event.type:
        raise BadEvent(f"an event's type is a text that is not empty, not {event.type!r} (stream {stream!r})")
    for name in "data", "meta":
        if not isinstance(value := getattr(event, name), bytes):
            raise BadEvent(f"{name} of {event.type!r} for stream {stream!r} is bytes, not a {type(value).__name__}")
    for name in "id", "correlation", "causation":
        if not isinstance(value := getattr(event, name), str):
            raise BadEvent(f"{name} of {event.type!r} for stream {stream!r} is a text, not a {type(value).__name__}")
    if len(event.id.encode(errors="replace")) > MAX_ID_BYTES:
        raise BadEvent(f"an event's id has at most {MAX_ID_BYTES} bytes, not {event.id[:40]!r}… (stream {stream!r})")


def check_version(stream: str, version: int) -> int:
    """Refuse an expected version of a stream that is not a number from 0."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise BadInput(f"the expected version of stream {stream!r} is a number from 0, not {version!r}")
    return version


def stream_name(category: str, *parts: str) -> str:
    """The name of a stream: `stream_name("Cart", "acme", "42")` is "Cart-acme_42"."""
    for part in parts:
        if not part or "_" in part:
            raise BadName(f"a part of a stream's id is not empty and has no '_', not {part!r}")
    if "-" in category:
        raise BadName(f"a category has no '-', not {category!r}")
    return check_name(f"{category}-{'_'.join(parts)}")


def split_name(name: str) -> tuple[str, tuple[str, ...]]:
    """The two parts of a stream's name: its category, and the parts of its id."""
    category, dash, id = name.partition("-") if isinstance(name, str) else ("", "", "")
    parts = tuple(id.split("_"))
    if not dash or not category or not all(parts):
        raise BadName(f"{name!r} is no stream's name: Category-id, or Category-part_part; none of them empty")
    return category, parts


def check_name(name: str) -> str:
    """Refuse a stream's name that has no category and id, or that tailrace reserves."""
    split_name(name)
    if name.startswith("$"):
        raise BadName(f"{name!r} begins with '$', as only tailrace's own items do")
    if len(name.encode(errors="replace")) > 1024 or not name.isprintable():
        raise BadName(f"a stream's name has at most 1024 bytes and can be printed, not {name[:40]!r}…")
    return name


def checked(stream: str, events: Iterable[Event], unfolds: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """Events and unfolds that can be appended; nothing at all is an error."""
    new, derived = list(check_events(stream, events)), list(check_events(stream, unfolds))
    if not new and not derived:
        raise BadEvent(f"nothing to append to stream {stream!r}: no events and no unfolds")
    for event in (*new, *derived):
        check_event(stream, event)
    given = [event.id for event in new if event.id]
    if len({*given}) < len(given):
        raise BadEvent(f"two events of one append to stream {stream!r} have the same id: {given}")
    return new, derived
