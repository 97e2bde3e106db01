"""Codecs: dataclasses, structs, models; upcasters; what cannot be read or written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest

from tailrace.errors import BadEvent, BadSetting, OutOfMemory, Undecodable
from tailrace.events import Event, JsonCodec, RawCodec, payload


@dataclass(frozen=True)
class Opened:
    owner: str
    score: float | None = None


class Moved(msgspec.Struct, frozen=True):
    to: str
    event_type: ClassVar[str] = "Moved.v3"


def test_dataclasses_and_structs_come_back() -> None:
    codec: JsonCodec[Any] = JsonCodec(Opened, Moved)
    for value in Opened("ann", 1.5), Opened("ann"), Moved("there"):
        assert codec.decode("A-1", codec.encode("A-1", value)) == value
    assert codec.encode("A-1", Moved("there")).type == "Moved.v3"


def test_pydantic_models_come_back() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Closed(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        why: str
        cost: float = 0.0

    codec: JsonCodec[Any] = JsonCodec(Closed)
    assert codec.decode("A-1", codec.encode("A-1", Closed(why="x"))) == Closed(why="x")
    with pytest.raises(BadEvent):
        codec.encode("A-1", Closed(why="x", cost=float("nan")))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    with pytest.raises(BadEvent, match="'Opened' for stream 'A-1' cannot be JSON"):
        JsonCodec(Opened).encode("A-1", Opened("ann", wrong))


def test_upcasters_lead_from_one_type_to_the_next() -> None:
    codec = JsonCodec(
        Moved,
        upcasters={
            "Moved": lambda old: ("Moved.v2", {"place": old["where"]}),
            "Moved.v2": lambda old: ("Moved.v3", {"to": old["place"]}),
        },
    )
    assert codec.decode("A-1", Event("Moved", b'{"where": "here"}')) == Moved("here")
    assert codec.decode("A-1", Event("Moved.v2", b'{"place": "here"}')) == Moved("here")


@pytest.mark.parametrize(
    ("type", "data"),
    [("Old", b'{"a": 1}'), ("Older", b"{}"), ("Moved.v3", b"{}"), ("Moved.v3", b"no json"), ("Unknown", b"{}")],
)
def test_what_cannot_be_read_names_stream_and_index(type: str, data: bytes) -> None:
    codec = JsonCodec(Moved, upcasters={"Old": lambda old: ("Moved.v3", old["b"]), "Older": lambda old: ("None", old)})
    with pytest.raises(Undecodable, match="event 7 of stream 'A-1'") as caught:
        codec.decode("A-1", Event(type, data, index=7))
    assert (caught.value.stream, caught.value.index) == ("A-1", 7)


def test_unknown_types_can_be_skipped() -> None:
    assert JsonCodec(Moved, skip_unknown=True).decode("A-1", Event("Unknown")) is None
    assert JsonCodec(Moved).decode("A-1", Event("Unknown", unfold=True)) is None


def test_more_about_an_event() -> None:
    codec = JsonCodec(Opened, about=lambda event: {"id": f"open-{event.owner}", "correlation": "c"})
    event = codec.encode("A-1", Opened("ann"))
    assert (event.id, event.correlation) == ("open-ann", "c")


def test_bad_codecs() -> None:
    with pytest.raises(BadSetting):
        JsonCodec(Opened, Opened)
    with pytest.raises(BadSetting):
        JsonCodec(Opened, upcasters={"Opened": lambda old: ("Opened", old)})
    with pytest.raises(BadEvent, match="has no type 'int'"):
        JsonCodec(Opened).encode("A-1", 5)  # type: ignore[arg-type]


def test_raw() -> None:
    event = Event("A")
    assert RawCodec().decode("A-1", RawCodec().encode("A-1", event)) is event


def test_too_little_memory_to_unpack_an_event_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise MemoryError

    encoding, data = payload.squeeze(bytes(1000), "deflate")
    monkeypatch.setattr(payload.zlib, "decompressobj", refuse)
    with pytest.raises(OutOfMemory, match="event 7 of stream 'a-1'"):
        payload.expand(encoding, data, "a-1", 7)
