"""ReaderContract: the tests that every reader passes, ours and yours.

Subclass it in a test module and define one fixture, `source`, which talks to the other system without the reader:

    class TestMyReader(ReaderContract):
        @pytest.fixture
        def source(self):
            return MySource(…)             # a SourceUnderTest: makes readers, adds and removes documents

A source whose documents change also has `change` and `remove` (`ChangingSource`).  One that can be emptied at once
has `truncate` (`EmptiableSource`).  The tests follow a reader with several splits as a pipeline does, each split by a
reader of its own.  Documents are {"id": number, "text": text}; each test gets a new, empty namespace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pytest

from tailrace.adaptors.contract import Changes, Piece, Position, Reader
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import keys_of, messages_of, namespace_of
from tailrace.log.record import Mode, Op

Document = dict[str, Any]
MAX_WAIT_SECONDS = 20.0
"""Seconds for which a test waits for changes that must come."""


class SourceUnderTest(Protocol):
    """The operations that a test needs of the system behind a reader.  `namespace` exists, without documents, when the
    test begins."""

    namespace: str

    def reader(self) -> Reader:
        """Return a new reader of the source."""

    def add(self, documents: Sequence[Document]) -> None:
        """Insert documents, in one transaction if the system has transactions."""


class ChangingSource(SourceUnderTest, Protocol):
    """A source whose documents change and are deleted."""

    def change(self, documents: Sequence[Document]) -> None:
        """Give existing documents a new text."""

    def remove(self, ids: Sequence[int]) -> None:
        """Delete documents."""


class EmptiableSource(SourceUnderTest, Protocol):
    """A source whose reader reports by a command when all documents are removed at once."""

    def truncate(self) -> None:
        """Remove all documents with one statement."""


def some(ids: Iterable[int], text: str = "text") -> list[Document]:
    """Return documents with these ids, for a source to hold."""
    return [{"id": n, "text": f"{text} {n}"} for n in ids]


def state(messages: Iterable[Message]) -> dict[int, str]:
    """Return the documents that a sink holds after these messages: the text of each id."""
    held: dict[int, str] = {}
    for message in messages:
        number = int(message.data["id"])
        if message.op == Op.DELETE:
            held.pop(number, None)
        else:
            held[number] = message.data["text"] if "text" in message.data else held[number]
    return held


def copied(reader: Reader, pieces: Iterable[Piece]) -> list[Message]:
    """Return every message of some pieces."""
    return [m for piece in pieces for batch in reader.copy(piece) for m in messages_of(batch)]


class FollowedReader:
    """A reader that follows one namespace from a position on; `make` makes another reader for each further split."""

    def __init__(
        self, reader: Reader, position: Position, namespace: str, make: Callable[[], Reader] | None = None
    ) -> None:
        self.reader, self.position, self.messages = reader, position, list[Message]()
        self.split_of: dict[str, set[str]] = {}
        """By message id: the splits that its changes came from."""
        self._namespace, self._make = namespace, make
        self._readers: dict[str, Reader] = {}
        self._following: dict[str, Iterator[Changes]] = {}
        self._turns: list[str] = []
        splits = reader.splits(position)
        if not splits:
            self._readers, self._following = {"": reader}, {"": reader.follow(position, [namespace])}
        for split in splits:
            self._open(split)

    def _open(self, split: str) -> None:
        assert self._make is not None, "several splits need several readers"
        reader = self._readers[split] = self._make()
        self.position["splits"].setdefault(split, None)
        self._following[split] = reader.follow(self.position["splits"][split], [self._namespace], split)

    def until(self, enough: Callable[[list[Message]], bool], *, acknowledge: bool = True) -> list[Message]:
        """Take steps until `enough` holds for the messages so far, and return them; fails after `MAX_WAIT_SECONDS`."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while not enough(self.messages):
            assert time.monotonic() < deadline, f"after {MAX_WAIT_SECONDS:.0f} s there were only {self.messages}"
            self.step()
            if acknowledge:
                self.acknowledge()
        return self.messages

    def acknowledge(self) -> None:
        """Acknowledge to the source everything up to the present position."""
        for split, reader in self._readers.items():
            at = self.position["splits"].get(split) if split else self.position
            if at is not None:
                reader.acknowledge(at)

    def step(self) -> Changes:
        """Take the next changes of one split, in turn, and return them."""
        self._turns = self._turns or list(self._following)
        split = self._turns.pop(0)
        changes = next(self._following[split])
        for batch in changes.rows:
            if namespace_of(batch) == self._namespace:
                found = list(messages_of(batch))
                self.messages += found
                for message in found:
                    self.split_of.setdefault(message.id, set()).add(split)
        self._move(split, changes)
        return changes

    def _move(self, split: str, changes: Changes) -> None:
        at = json.loads(json.dumps(changes.position))
        if not split:
            self.position = at
            return
        self.position["splits"][split] = at
        for opened in changes.opened:
            self._open(opened)
        if changes.closed:
            del self.position["splits"][split], self._following[split]
            self._readers.pop(split).close()

    def close(self) -> None:
        """Stop following, and close the readers."""
        for changes in self._following.values():
            close = getattr(changes, "close", None)
            if close is not None:
                close()
        for reader in (self.reader, *self._readers.values()):
            reader.close()


class ReaderContract:
    """The tests of a reader; subclass it with a fixture `source`, as the module's docstring shows."""

    def test_it_says_what_can_be_read(self, source: SourceUnderTest) -> None:
        reader = source.reader()
        reader.check()
        assert source.namespace in [namespace.name for namespace in reader.namespaces()]
        reader.close()

    @pytest.mark.parametrize("size", [1, 7, 1000])
    def test_pieces_make_up_the_whole(self, source: SourceUnderTest, size: int) -> None:
        source.add(some(range(50)))
        reader = _copying(source)
        pieces = reader.pieces(source.namespace, size)
        messages = copied(reader, pieces)
        assert sorted(int(m.data["id"]) for m in messages) == list(range(50))
        assert state(messages) == {n: f"text {n}" for n in range(50)}
        reader.close()

    def test_copied_rows(self, source: SourceUnderTest) -> None:
        source.add(some(range(3)))
        reader = _copying(source)
        batches = [b for piece in reader.pieces(source.namespace, 100) for b in reader.copy(piece) if b.num_rows]
        for batch in batches:
            batch.validate(full=True)
            assert namespace_of(batch) == source.namespace
            assert set(keys_of(batch)) <= {field.name for field in batch.schema.field("data").type}
        messages = [m for batch in batches for m in messages_of(batch)]
        assert {(m.mode, m.op) for m in messages} == {(Mode.COPY, Op.INSERT)}
        assert len({m.id for m in messages}) == 3
        reader.close()

    def test_an_empty_namespace_is_one_piece(self, source: SourceUnderTest) -> None:
        reader = _copying(source)
        (piece,) = reader.pieces(source.namespace, 100)
        assert copied(reader, [piece]) == []
        reader.close()

    def test_a_piece_can_go_elsewhere_and_be_read_again(self, source: SourceUnderTest) -> None:
        source.add(some(range(20)))
        planner = _copying(source)
        pieces = planner.pieces(source.namespace, 5)
        planner.close()
        for _ in range(2):
            reader = source.reader()
            sent = [Piece(p.namespace, json.loads(json.dumps(p.bounds)), p.rows) for p in pieces]
            assert len(copied(reader, sent)) == 20
            reader.close()

    def test_following(self, source: SourceUnderTest) -> None:
        follower = _begun(source)
        source.add(some(range(5)))
        source.add(some(range(5, 8)))
        messages = follower.until(lambda found: len(found) >= 8)
        _in_order(follower, range(8))
        assert {m.mode for m in messages} == {Mode.SYNC}
        follower.close()

    def test_nothing_happens_is_said_too(self, source: SourceUnderTest) -> None:
        follower = _begun(source)
        follower.step()
        for _ in range(3):
            begin = time.monotonic()
            assert not follower.step().rows
            assert time.monotonic() - begin < 5
        follower.close()

    def test_a_second_begin_loses_nothing(self, source: SourceUnderTest) -> None:
        reader = _copying(source)
        _needs_following(reader)
        reader.begin([source.namespace])
        source.add(some(range(3)))
        position = json.loads(json.dumps(reader.begin([source.namespace])))
        held = state(copied(reader, reader.pieces(source.namespace, 100)))
        reader.close()
        follower = FollowedReader(source.reader(), position, source.namespace, source.reader)
        source.add(some(range(3, 4)))
        follower.until(lambda found: 3 in state(found))
        assert held | state(follower.messages) == {n: f"text {n}" for n in range(4)}
        follower.close()

    def test_any_position_can_be_gone_on_from(self, source: SourceUnderTest) -> None:
        first = _begun(source)
        source.add(some(range(3)))
        first.until(lambda found: len(found) >= 3)
        first.close()
        source.add(some(range(3, 6)))
        for _ in range(2):
            start = json.loads(json.dumps(first.position))
            again = FollowedReader(source.reader(), start, source.namespace, source.reader)
            messages = again.until(lambda found: len(found) >= 3, acknowledge=False)
            assert sorted(int(m.data["id"]) for m in messages) == [3, 4, 5]
            again.close()

    def test_what_is_not_acknowledged_comes_again(self, source: SourceUnderTest) -> None:
        first = _begun(source)
        start = json.loads(json.dumps(first.position))
        source.add(some(range(3)))
        first.until(lambda found: len(found) >= 3, acknowledge=False)
        first.close()
        again = FollowedReader(source.reader(), start, source.namespace, source.reader)
        assert state(again.until(lambda found: len(found) >= 3)) == {n: f"text {n}" for n in range(3)}
        again.close()

    def test_splits_go_on_each_from_its_own_position(self, source: SourceUnderTest) -> None:
        follower = _begun(source)
        if "splits" not in (follower.position if isinstance(follower.position, dict) else {}):
            follower.close()
            pytest.skip("this source has one log")
        source.add(some(range(20)))
        follower.until(lambda found: len(found) >= 20)
        assert all(len(splits) == 1 for splits in follower.split_of.values()), "a key is in one split at a time"
        follower.close()
        source.add(some(range(20, 30)))
        again = FollowedReader(source.reader(), follower.position, source.namespace, source.reader)
        messages = again.until(lambda found: len(found) >= 10)
        assert sorted(int(m.data["id"]) for m in messages) == list(range(20, 30))
        again.close()

    def test_a_command_comes_after_what_was_before_it(self, source: EmptiableSource) -> None:
        if not hasattr(source, "truncate"):
            pytest.skip("this source gives no commands")
        follower = _begun(source)
        source.add(some(range(3)))
        source.truncate()
        source.add(some([7]))
        messages = follower.until(lambda found: any(m.data.get("id") == 7 for m in found))
        assert [m.data["command"] for m in messages if m.op == Op.COMMAND] == ["truncate"]
        at = next(n for n, m in enumerate(messages) if m.op == Op.COMMAND)
        assert [m.data["id"] for m in messages[at + 1 :]] == [7], "rows that it removed come before it, or not at all"
        follower.close()

    def test_copy_then_follow(self, source: SourceUnderTest) -> None:
        source.add(some(range(10)))
        reader = _copying(source)
        _needs_following(reader)
        position = json.loads(json.dumps(reader.begin([source.namespace])))
        source.add(some(range(10, 15)))
        pieces = reader.pieces(source.namespace, 4)
        source.add(some(range(15, 20)))
        messages = copied(reader, pieces)
        reader.close()
        source.add(some(range(20, 25)))
        follower = FollowedReader(source.reader(), position, source.namespace, source.reader)
        follower.until(lambda found: 24 in state(found))
        assert state([*messages, *follower.messages]) == {n: f"text {n}" for n in range(25)}
        follower.close()

    def test_changes_and_removals(self, source: ChangingSource) -> None:
        if not hasattr(source, "change"):
            pytest.skip("documents of this source only come")
        source.add(some(range(5)))
        follower = _begun(source)
        source.change(some([1, 2], "other"))
        source.remove([2, 3])
        source.add(some([3], "again"))
        messages = follower.until(
            lambda found: any(m.data.get("text") == "again 3" for m in found) and _deleted(found) >= {2, 3}
        )
        assert _deleted(messages) == {2, 3}
        before = {n: f"text {n}" for n in range(5)}
        after = state([*_as_messages(source.namespace, before), *messages])
        assert after == {0: "text 0", 1: "other 1", 3: "again 3", 4: "text 4"}
        follower.close()

    def test_ids_are_the_same_in_a_copy_and_after_it(self, source: ChangingSource) -> None:
        if not hasattr(source, "change"):
            pytest.skip("documents of this source only come")
        source.add(some([7]))
        follower = _begun(source)
        reader = _copying(source)
        (copy,) = copied(reader, reader.pieces(source.namespace, 10))
        reader.close()
        source.change(some([7], "other"))
        source.remove([7])
        messages = follower.until(lambda found: len(found) >= 2)
        assert {m.id for m in messages} == {copy.id}
        follower.close()


def _deleted(messages: Iterable[Message]) -> set[int]:
    return {int(m.data["id"]) for m in messages if m.op == Op.DELETE}


def _copying(source: SourceUnderTest) -> Reader:
    reader = source.reader()
    if not reader.copies:
        reader.close()
        pytest.skip("this source has no copy")
    return reader


def _in_order(follower: FollowedReader, ids: Iterable[int]) -> None:
    """Check that each split's changes are in the order in which they were made, and that all ids are there."""
    found: dict[frozenset[str], list[int]] = {}
    for message in follower.messages:
        found.setdefault(frozenset(follower.split_of[message.id]), []).append(int(message.data["id"]))
    assert all(some == sorted(some) for some in found.values())
    assert sorted(n for some in found.values() for n in some) == list(ids)


def _needs_following(reader: Reader) -> None:
    if not reader.follows:
        reader.close()
        pytest.skip("this reader does not follow")


def _begun(source: SourceUnderTest) -> FollowedReader:
    reader = source.reader()
    _needs_following(reader)
    position = json.loads(json.dumps(reader.begin([source.namespace])))
    reader.close()
    return FollowedReader(source.reader(), position, source.namespace, source.reader)


def _as_messages(namespace: str, held: dict[int, str]) -> list[Message]:
    return [Message(Op.INSERT, namespace, str(n), {"id": n, "text": text}) for n, text in held.items()]
