"""Following real servers: every kind of value, tables that come and go, streams that are switched off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.dynamodb.item_json import from_text
from tailrace.adaptors.dynamodb.source import table_stream
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import NotReady, NotThere, PositionLost
from tailrace.log.record import Op
from tailrace.storage.keys import KeySchema
from tests.adaptors.dynamodb.place import Place
from tests.adaptors.dynamodb.values import VALUES

pytestmark = pytest.mark.server
PATIENCE = 30.0
ON = "--stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"


class Followed:
    """A pipeline from some tables into memory, in one thread: `held` has the items of each by their id."""

    def __init__(self, place: Place, *tables: str, **settings: Any) -> None:
        self._place, self._settings = place, settings
        self.reader = place.reader(**settings)
        self.namespaces = list(tables)
        self.position = _kept(self.reader.begin(tables))
        self.held: dict[str, dict[str, Any]] = {table: {} for table in tables}
        self.told: list[tuple[str, list[str]]] = []
        self._changes: Iterator[Changes] | None = None
        self.copy(*tables)

    def copy(self, *tables: str) -> None:
        for table in tables:
            if not table.startswith(self._place.prefix):
                continue
            try:
                pieces = self.reader.pieces(table, 100)
            except NotThere:
                continue
            self.namespaces += [table] * (table not in self.namespaces)
            for piece in pieces:
                for batch in self.reader.copy(piece):
                    self._take(messages_of(batch))

    def step(self) -> Changes:
        if self._changes is None:
            self._changes = iter(self.reader.follow(self.position, self.namespaces))
        changes = next(self._changes)
        ours = {name: [t for t in getattr(changes, name) if t.startswith(self._place.prefix)] for name in TOLD}
        self.told += [(name, some) for name, some in ours.items() if some]
        for batch in changes.rows:
            self._take(messages_of(batch))
        self.position = _kept(changes.position)
        self.copy(*[t for t in ours["appeared"] if t not in self.namespaces], *ours["altered"])
        return changes

    def until(self, enough: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"not there after {PATIENCE} s: {self.told}, {self.held}"
            self.step()

    def again(self) -> None:
        """Go on from the position with another reader, as after a crash."""
        self.reader.close()
        self.reader, self._changes = self._place.reader(**self._settings), None
        self.reader.begun(self.position)

    def _take(self, messages: Iterator[Message]) -> None:
        for message in messages:
            held = self.held.setdefault(message.namespace, {})
            if message.op == Op.COMMAND:
                self.told.append((message.data["command"], [message.namespace]))
                held.clear()
            elif message.op == Op.DELETE:
                held.pop(message.id, None)
            else:
                held[message.id] = message.data

    def close(self) -> None:
        self.reader.close()


TOLD = ("appeared", "altered", "ended")


def _kept(value: Any) -> Any:
    return json.loads(json.dumps(value))


def items(followed: Followed, table: str) -> list[Any]:
    return [from_text(data["document"]) for data in followed.held[table].values()]


@pytest.mark.parametrize("server", ["place", "moto_place"])
def test_every_value(request: pytest.FixtureRequest, server: str) -> None:
    place: Place = request.getfixturevalue(server)
    table = place.table("values", KeySchema("name", "S", "n", "N"))
    first, second = ([{"name": name, "n": n, "value": v} for name, v in VALUES.items()] for n in (1, 2))
    place.put(table, *first)
    with closing(Followed(place, table)) as followed:
        place.put(table, *second)
        followed.until(lambda: len(followed.held[table]) == 2 * len(VALUES))
        assert _sorted(items(followed, table)) == _sorted([*first, *second]) == _sorted(place.items(table))


def _sorted(found: list[Any]) -> list[Any]:
    return sorted(found, key=lambda one: (one["n"], one["name"]))


@pytest.mark.parametrize(("kind", "key"), [("S", "a\0b"), ("N", 10**30), ("B", b"\xff\x00")])
def test_any_key_schema(place: Place, kind: Any, key: Any) -> None:
    table = place.table("keys", KeySchema("hash key", kind, "r", kind))
    place.put(table, {"hash key": key, "r": key, "v": 1})
    with closing(Followed(place, table, shape="columns")) as followed:
        (copied,) = followed.held[table]
        place.put(table, {"hash key": key, "r": key, "v": 2, "w": "x"})
        followed.until(lambda: followed.held[table][copied].get("w") == "x")
        place.delete(table, **{"hash key": key, "r": key})
        followed.until(lambda: not followed.held[table])


def test_a_stream_without_old_images(place: Place) -> None:
    table = place.table("new", view="new")
    place.put(table, {"id": 1, "v": 1})
    with closing(Followed(place, table)) as followed:
        place.delete(table, id=1)
        followed.until(lambda: not followed.held[table])


@pytest.mark.parametrize("view", [None, "keys", "old"])
def test_a_table_that_cannot_be_followed(place: Place, view: Any) -> None:
    table = place.table("no-stream", view=view)
    with closing(place.reader()) as reader:
        with pytest.raises(NotReady, match=f"update-table --table-name {table} {ON}") as refused:
            reader.check_namespaces([table])
        assert "\n" not in str(refused.value)
        assert ("StreamEnabled=false" in str(refused.value)) == (view is not None)
        with pytest.raises(NotReady):
            reader.begin([table])
    with closing(place.reader(follow=False)) as reader:
        reader.check_namespaces([table])
        assert reader.begin([table]) is None


def test_tables_that_come_and_go(place: Place) -> None:
    table = place.table("first")
    place.put(table, {"id": 1, "v": "old"})
    with closing(Followed(place, table)) as followed:
        other = place.table("second")
        place.put(other, {"id": 7, "v": "new"})
        followed.until(lambda: followed.held.get(other))
        place.put(other, {"id": 8, "v": "newer"})
        followed.until(lambda: len(followed.held[other]) == 2)
        place.drop(table)
        followed.until(lambda: ("ended", [table]) in followed.told)
        assert followed.held[table], "what was delivered stays"
        place.put(place.table("first"), {"id": 2, "v": "another"})
        followed.until(lambda: {"id": 2, "v": "another"} in items(followed, table))
        assert [name for name, tables in followed.told if tables == [table]] == ["ended", "truncate", "altered"]
        place.put(table, {"id": 3, "v": "followed"})
        # The stream of dynoxide's new table still has the changes of the old one, which may come, too.
        followed.until(lambda: "3" in followed.held[table])


@pytest.mark.parametrize("running", [True, False])
def test_a_table_that_is_made_again(place: Place, running: bool) -> None:
    table = place.table("again")
    place.put(table, {"id": 1, "v": "old"})
    with closing(Followed(place, table)) as followed:
        followed.step()
        if not running:
            followed.again()
        place.drop(table)
        place.put(place.table("again"), {"id": 2, "v": "new"})
        followed.until(lambda: ("altered", [table]) in followed.told)
        assert ("truncate", [table]) in followed.told
        assert {"id": 2, "v": "new"} in items(followed, table)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("on_again", [True, False])
def test_a_stream_that_is_switched_off(place: Place, running: bool, on_again: bool) -> None:
    table = place.table("off")
    with closing(Followed(place, table)) as followed:
        followed.step()
        if not running:
            followed.again()
        place.client.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
        if on_again:
            time.sleep(1.1)  # a stream is named by its second
            view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
            place.client.update_table(TableName=table, StreamSpecification=view)
        with pytest.raises(PositionLost, match=f"table {table}: .*another name") as lost:
            followed.until(lambda: False)
        assert "\n" not in str(lost.value)


def test_a_new_table_without_a_stream_waits_for_one(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    table = place.table("first")
    with closing(Followed(place, table)) as followed:
        other = place.table("second", view=None)
        place.put(other, {"id": 7, "v": "new"})
        followed.until(lambda: f"the table {other} has no stream" in caplog.text)
        view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        place.client.update_table(TableName=other, StreamSpecification=view)
        followed.until(lambda: followed.held.get(other))
        place.put(other, {"id": 8, "v": "newer"})
        followed.until(lambda: len(followed.held[other]) == 2)
    assert caplog.text.count("neither copied nor followed") == 1


def test_a_position_that_was_never_stored(place: Place) -> None:
    """A run that died between the copy of a table and the first write of its position."""
    table = place.table("unknown")
    place.put(table, {"id": 1, "v": "kept"}, {"id": 2, "v": "deleted"})
    with closing(Followed(place, table)) as followed:
        del followed.position[table]
        followed.again()
        place.delete(table, id=2)
        followed.until(lambda: items(followed, table) == [{"id": 1, "v": "kept"}])
        assert ("truncate", [table]) in followed.told


def test_a_quiet_table_moves_no_position(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.table("quiet")
    with closing(Followed(place, table)) as followed:
        place.put(table, {"id": 1})
        followed.until(lambda: followed.held[table])
        followed.step()
        before = followed.position
        assert [followed.step().position for _ in range(5)] == [before] * 5
        assert "1 shards, the last progress of each at most 0 s ago" in followed.reader.health()
        monkeypatch.setattr(table_stream, "REFRESH_SECONDS", 0.0)
        time.sleep(1.1)
        followed.until(lambda: followed.position[table]["at"] > before[table]["at"])


def test_a_run_that_dies_before_a_table_is_copied_again(place: Place) -> None:
    table = place.table("again")
    place.put(table, {"id": 1, "v": "old"})
    with closing(Followed(place, table)) as followed:
        followed.step()
        place.drop(table)
        place.put(place.table("again"), {"id": 2, "v": "new"})
        time.sleep(5.5)  # its change is then in no stream that is read from now on
        followed.again()
        followed.until(lambda: ("truncate", [table]) in followed.told)
        followed.again()
        followed.until(lambda: {"id": 2, "v": "new"} in items(followed, table))
        assert followed.told[-1] == ("altered", [table])
        followed.until(lambda: "uncopied" not in followed.position[table])


def test_a_position_moves_only_with_its_rows(place: Place) -> None:
    """One table goes in the round in which another has changes."""
    gone, other = place.table("gone"), place.table("other")
    with closing(Followed(place, gone, other)) as followed:
        followed.step()
        before = followed.position[other]
        place.put(other, {"id": 1})
        place.drop(gone)
        while (changes := followed.step()).position[other] == before:
            pass
        assert [row.num_rows for row in changes.rows] == [1]
        followed.until(lambda: ("ended", [gone]) in followed.told)


def test_changes_from_before_the_position_are_no_quiet(place: Place) -> None:
    table = place.table("busy")
    place.put(table, *({"id": n} for n in range(30)))
    time.sleep(7)  # longer ago than clocks may differ
    with closing(Followed(place, table)) as followed:
        assert not followed.step().caught_up
        followed.until(lambda: followed.step().caught_up)
