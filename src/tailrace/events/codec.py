"""Codecs: turn events into objects of your own classes and back, with upcasters for events that older programs have
written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tailrace.errors import BadEvent, BadSetting, Undecodable
from tailrace.events.event import Event, check_event

E = TypeVar("E")
Upcaster = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
"""Turns the fields of an event of an old type into a newer type's name and fields."""


class Codec(Protocol[E]):
    """Converts between objects and events. `decode` returns None for events to skip."""

    def encode(self, stream: str, value: E) -> Event:
        """An object as an event."""

    def decode(self, stream: str, event: Event) -> E | None:
        """An event as an object."""


class RawCodec:
    """Events as they are."""

    def encode(self, stream: str, value: Event) -> Event:
        """The event itself."""
        check_event(stream, value)
        return value

    def decode(self, stream: str, event: Event) -> Event | None:
        """The event itself."""
        return event


class JsonCodec(Generic[E]):
    """Events as dataclasses, msgspec structs or pydantic models, stored as JSON under their class's name.

    A class attribute `event_type` gives another name.  `upcasters` turn former types, one step at a time, into a
    current one.  `about` returns further fields of an event: id, meta, correlation, causation.  An unknown type is an
    error, unless `skip_unknown`; unknown unfolds are always skipped."""

    def __init__(
        self,
        *classes: type[E],
        upcasters: Mapping[str, Upcaster] | None = None,
        about: Callable[[E], Mapping[str, Any]] | None = None,
        skip_unknown: bool = False,
    ) -> None:
        self._classes = {name_of(cls): cls for cls in classes}
        self._upcasters, self._about, self._skip = dict(upcasters or {}), about, skip_unknown
        if len(self._classes) < len(classes):
            raise BadSetting(f"two classes of a codec have one type: {sorted(map(name_of, classes))}")
        for name in self._upcasters:
            if name in self._classes:
                raise BadSetting(f"{name!r} is a type of today; an upcaster is for one of the past")

    def encode(self, stream: str, value: E) -> Event:
        """An object as an event; what JSON cannot hold is refused."""
        name = name_of(type(value))
        if name not in self._classes:
            known = sorted(self._classes)
            raise BadEvent(f"the codec of stream {stream!r} has no type {name!r}; it has {', '.join(known)}")
        try:
            data = _to_json(value)
        except Exception as error:
            raise BadEvent(f"{name!r} for stream {stream!r} cannot be JSON: {error}") from error
        more = self._about(value) if self._about is not None else {}
        return Event(name, data, **more)

    def decode(self, stream: str, event: Event) -> E | None:
        """An event's JSON as an object of today's class."""
        if event.type not in self._classes and event.type not in self._upcasters:
            if self._skip or event.unfold:
                return None
            raise _undecodable(stream, event, "no class and no upcaster has this type")
        try:
            return self._decoded(event)
        except Exception as error:
            raise _undecodable(stream, event, f"{type(error).__name__}: {error}") from error

    def _decoded(self, event: Event) -> E:
        if event.type in self._classes:
            return _from_json(event.data, self._classes[event.type])
        name, fields = event.type, msgspec.json.decode(event.data)
        for _ in range(len(self._upcasters)):
            if name in self._upcasters:
                name, fields = self._upcasters[name](fields)
        if name not in self._classes:
            raise ValueError(f"upcasters lead to {name!r}, which no class has")
        return _from_json(msgspec.json.encode(fields), self._classes[name])


def name_of(cls: type) -> str:
    """The type that events of a class have."""
    return str(getattr(cls, "event_type", cls.__name__))


def _undecodable(stream: str, event: Event, why: str) -> Undecodable:
    return Undecodable(
        f"event {event.index} of stream {stream!r}, a {event.type!r}, cannot be read: {why}; "
        "give the codec a class or an upcaster that can",
        stream=stream,
        index=event.index,
    )


def _to_json(value: Any) -> bytes:
    pydantic = hasattr(value, "model_dump_json")
    data: bytes = value.model_dump_json().encode() if pydantic else msgspec.json.encode(value)
    if b"null" in data:  # NaN and infinity would silently become null
        _check_finite(value.model_dump() if pydantic else msgspec.to_builtins(value))
    return data


def _check_finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON's")
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_finite(inner)


def _from_json(data: bytes, cls: type[E]) -> E:
    if hasattr(cls, "model_validate_json"):
        return cls.model_validate_json(data)  # type: ignore[attr-defined, no-any-return]
    return msgspec.json.decode(data, type=cls)
