"""Epochs, spans and checkpoints: the vectors, and that what an epoch stores is what it knows."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.errors import BadInput
from tailrace.events.event import Event
from tailrace.feed.checkpoint import after_epoch, checkpoint, place
from tailrace.feed.epoch import CLOSED, Epoch, EpochLimits, IndexGap, NewSpans, decode
from tailrace.feed.span import Span, span_of
from tailrace.storage.changes import Change
from tailrace.storage.tables import Key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def span(stream: str, index: int, types: str) -> Span:
    return Span(stream, index, tuple(types))


def changed(kind: Any, item: dict[str, Any] | None) -> Change:
    return Change("id", kind, "1", NOW, Key("Cat-Id", 1), item, None)


@pytest.mark.parametrize(
    ("kind", "item", "wanted"),
    [
        ("INSERT", {"p": "Cat-Id", "a": 2, "n": 2, "c": ["a", "a"]}, span("Cat-Id", 0, "aa")),
        ("MODIFY", {"p": "Cat-Id", "a": 1, "n": 7, "c": ["a", "b", "c"]}, span("Cat-Id", 6, "c")),
        ("MODIFY", {"p": "Cat-Id", "a": 0, "n": 7, "c": ["a", "b", "c"]}, None),
        ("INSERT", {"p": "Cat-Id", "n": 7, "c": ["a", "b", "c"]}, None),
        ("REMOVE", None, None),
        ("REMOVE", {"p": "Cat-Id", "a": 1, "n": 1, "c": ["a"]}, None),
        ("INSERT", {"p": "$AppendsEpoch-0_0", "a": 1, "n": 1, "c": ["Ingested"]}, None),
        ("MODIFY", None, None),
    ],
)
def test_what_a_change_of_the_table_added(kind: Any, item: Any, wanted: Span | None) -> None:
    assert span_of(changed(kind, item)) == wanted


def taken(epoch: Epoch, *spans: Span) -> NewSpans:
    batch, gaps = epoch.ingest(spans)
    assert not gaps
    epoch.fold([batch.encode()] if batch else [])
    return batch


def test_an_unknown_stream_is_added_and_a_known_one_appended() -> None:
    epoch = Epoch()
    assert taken(epoch, span("Cat-Id", 0, "aa")) == NewSpans(added=(span("Cat-Id", 0, "aa"),))
    assert taken(epoch, span("Cat-Id", 1, "ab")) == NewSpans(appended=(span("Cat-Id", 2, "b"),))
    assert not taken(epoch, span("Cat-Id", 1, "ab"), span("Cat-Id", 0, "a"))
    assert taken(epoch, span("Other-Id", 7, "x")) == NewSpans(added=(span("Other-Id", 7, "x"),))


def test_a_gap_is_named_and_nothing_behind_it_is_taken() -> None:
    epoch = Epoch()
    batch, gaps = epoch.ingest(
        [span("Cat-Id", 0, "a"), span("Cat-Id", 2, "b"), span("Cat-Id", 3, "c"), span("B-1", 0, "x")]
    )
    assert gaps == [IndexGap("Cat-Id", 2, 1)]
    assert batch.spans == (span("Cat-Id", 0, "a"), span("B-1", 0, "x"))


def test_gaps_are_passed_over_if_asked_and_named_all_the_same() -> None:
    spans = [span("Cat-Id", 0, "a"), span("Cat-Id", 2, "b"), span("Cat-Id", 3, "c")]
    batch, gaps = Epoch().ingest(spans, over_gaps=True)
    assert gaps == [IndexGap("Cat-Id", 2, 1)]
    assert batch.spans == (span("Cat-Id", 0, "a"), span("Cat-Id", 2, "bc"))


def test_a_repeat_in_the_same_batch_is_ignored() -> None:
    epoch = Epoch()
    spans = [span("Cat-Id", 0, "ab"), span("Cat-Id", 0, "a"), span("Cat-Id", 1, "bc"), span("Cat-Id", 0, "abc")]
    assert taken(epoch, *spans).spans == (span("Cat-Id", 0, "abc"),)


def test_an_event_delivered_again_after_its_epoch_closed_is_not_taken_twice() -> None:
    first = Epoch()
    taken(first, span("Cat-Id", 0, "ab"))
    second = Epoch(before=first.next)
    assert not taken(second, span("Cat-Id", 0, "ab"))
    assert taken(second, span("Cat-Id", 1, "bc")) == NewSpans(added=(span("Cat-Id", 2, "c"),))
    _, gaps = Epoch(before={**first.next, **second.next}).ingest([span("Cat-Id", 5, "f")])
    assert gaps == [IndexGap("Cat-Id", 5, 2)]


@pytest.mark.parametrize(
    ("limits", "full"),
    [(EpochLimits(), False), (EpochLimits(max_version=2), True), (EpochLimits(max_version=3), False),
     (EpochLimits(max_streams=2), True),
     (EpochLimits(max_streams=3), False), (EpochLimits(max_bytes=10), True)],
)  # fmt: skip
def test_when_an_epoch_is_full(limits: EpochLimits, full: bool) -> None:
    epoch = Epoch()
    taken(epoch, span("A-1", 0, "a"))
    taken(epoch, span("B-1", 0, "a"))
    assert epoch.full(limits) is full


def test_an_epoch_is_what_its_events_say() -> None:
    rng = random.Random(1)
    epoch, events, wanted = Epoch(), list[Event](), dict[str, int]()
    for _ in range(200):
        some = []
        for _ in range(rng.randint(1, 5)):
            stream = f"S-{rng.randint(0, 9)}"
            start = max(wanted.get(stream, 0) - rng.randint(0, 3), 0)
            some.append(Span(stream, start, ("x",) * rng.randint(1, 5)))
            wanted[stream] = max(wanted.get(stream, 0), some[-1].end)
        batch, gaps = epoch.ingest(some)
        assert not gaps
        if batch:
            events.append(batch.encode())
            assert decode(events[-1]) == batch
            epoch.fold(events[-1:])
    again = Epoch()
    again.fold([*events, Event(CLOSED)])
    assert again.next == epoch.next == wanted
    assert (again.version, again.closed) == (epoch.version + 1, True)


@pytest.mark.parametrize(("epoch", "index", "wanted"), [(0, 0, 0), (1, 1, 1000001), (2, 344, 2000344)])
def test_checkpoints(epoch: int, index: int, wanted: int) -> None:
    assert checkpoint(epoch, index) == wanted
    assert place(wanted) == (epoch, index)


def test_the_end_of_a_closed_epoch_is_the_beginning_of_the_next() -> None:
    assert after_epoch(7) == 8000000


@pytest.mark.parametrize(("epoch", "index"), [(0, 1_000_000), (-1, 0), (0, -1), (2**63 // 1_000_000, 0)])
def test_places_that_no_checkpoint_has(epoch: int, index: int) -> None:
    with pytest.raises(BadInput):
        checkpoint(epoch, index)


@pytest.mark.parametrize("wrong", [-1, 2**63, "5", 1.0, True, None])
def test_what_is_no_checkpoint(wrong: Any) -> None:
    with pytest.raises(BadInput):
        place(wrong)
