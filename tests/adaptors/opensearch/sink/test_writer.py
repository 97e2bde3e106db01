"""What is the sink's own: versions, ids, mappings, changes of single fields, commands, and what it refuses."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import DROP, TRUNCATE, Command, Who
from tailrace.adaptors.opensearch.sink import operations
from tailrace.adaptors.opensearch.sink.bulk import TURN_BITS, Overtaken, version_of
from tailrace.adaptors.rows.provenance import placed
from tailrace.errors import Fenced, NotReady, Rejected
from tailrace.log.record import Op
from tests.adaptors.opensearch.place import WHO, Place, rows

pytestmark = pytest.mark.server
WHOLE_NO = pa.array([False])


def change(columns: dict[str, Any], removed: list[str] | None = None) -> pa.RecordBatch:
    """A change of one document that leaves its other fields as they are."""
    gone = None if removed is None else pa.array([removed], pa.list_(pa.string()))
    return rows(columns, op=Op.UPDATE, whole=WHOLE_NO, removed=gone)


def test_the_log_grows_and_a_key_goes_on_at_offset_0(place: Place) -> None:
    """Were the offset the version, the second state would be refused as older than the first."""
    place.write(placed(rows({"id": [1, 2], "n": [1, 1]}), 3, pa.array([1_000_000, 1_000_001], pa.int64())), 1)
    place.write(placed(rows({"id": [1], "n": [2]}), 11, pa.array([0], pa.int64())), 2)
    place.write(placed(rows({"id": [2]}, op=Op.DELETE), 11, pa.array([1], pa.int64())), 3)
    assert place.documents("c") == {"1": {"id": 1, "n": 2}}


def test_the_log_of_a_pipeline_that_is_made_again_begins_at_0(place: Place) -> None:
    place.write(placed(rows({"id": [1], "n": [1]}), 0, pa.array([500], pa.int64())), 501)
    place.write(placed(rows({"id": [1], "n": [2]}), 0, pa.array([0], pa.int64())), 1, Who("again", "writer", 1))
    assert place.documents("c") == {"1": {"id": 1, "n": 2}}


def test_what_a_run_thought_dead_sends_late_changes_nothing(place: Place) -> None:
    """Its request is on its way while the next run writes the same rows, and deletes one."""
    with contextlib.closing(place.writer()) as old, contextlib.closing(place.writer()) as new:
        old.claim(Who("p", "w", 1))
        state = old._state(Who("p", "w", 1))
        late = old.stage([rows({"id": [1, 2], "n": ["old", "old"]})]).detail
        known = old._places.prepare(late, Who("p", "w", 1), {})
        assert known["c"].concrete == place.index("c")
        turn = old._turn(state, state.read(), Who("p", "w", 1), 1)
        new.claim(Who("p", "w", 2))
        new.finish([new.stage([rows({"id": [1, 2], "n": ["new", "new"]})])], Who("p", "w", 2), {"0": 2})
        new.finish([new.stage([rows({"id": [2]}, op=Op.DELETE)])], Who("p", "w", 2), {"0": 3})
        with pytest.raises(Fenced):
            old._apply(state, turn, late, Who("p", "w", 1))
        with pytest.raises(Overtaken):  # it was admitted before the other began
            old._bulk.write(_ops(late), version_of(turn.turn, 0), lambda: None)
    assert place.documents("c") == {"1": {"id": 1, "n": "new"}}


def put_by_hand(place: Place, id: int, version: int) -> None:
    place.ask("PUT", f"/{place.index('c')}/_doc/{id}?version={version}&version_type=external", {"n": 7})


def _ops(units: Any) -> Any:
    from tailrace.adaptors.opensearch.sink.writer import _operations

    return _operations(units)


def test_a_version_that_another_program_has_written_is_passed(place: Place) -> None:
    place.write(rows({"id": [1, 2], "n": [1, 1]}), 1)
    far = 5_000_000 << TURN_BITS
    for id in (1, 2):
        put_by_hand(place, id, far)
    place.write(rows({"id": [1], "n": [2]}), 2)
    place.write(rows({"id": [2]}, op=Op.DELETE), 3)
    assert place.documents("c") == {"1": {"id": 1, "n": 2}}
    put_by_hand(place, 1, 2**63 - 1)
    with pytest.raises(Rejected, match="too high") as refused:
        place.write(rows({"id": [1], "n": [3]}), 4)
    assert refused.value.id == "1"


def test_a_change_after_a_whole_document_in_one_batch(place: Place) -> None:
    with contextlib.closing(place.writer()) as sink:
        first = sink.stage([rows({"id": [1], "a": [1], "b": ["x"]}), change({"id": [1], "a": [2]})])
        then = sink.stage([change({"id": [1], "b": ["y"]}), change({"id": [9], "b": ["y"]})])
        sink.finish([first, then], WHO, {"0": 4})
    assert place.documents("c") == {"1": {"id": 1, "a": 2, "b": "y"}}


@pytest.mark.parametrize("size", [1, 10**9])
def test_a_document_in_several_units_of_a_batch(place: Place, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Units are sent at the same time, and the last state of each document counts."""
    monkeypatch.setattr(operations, "UNIT_BYTES", size)
    with contextlib.closing(place.writer()) as sink:
        parts = [
            rows({"id": [1, 2, 3], "n": [1, 1, 1]}),
            rows({"id": [1, 2], "n": [2, 2]}),
            rows({"id": [2], "n": [0]}, op=Op.DELETE),
            change({"id": [3], "n": [3]}),
            rows({"id": [1], "n": [4]}),
            rows({"id": [3], "n": [0]}, op=Op.DELETE),
            rows({"id": [3], "n": [5]}),
        ]
        staged = sink.stage(parts)
        assert len(staged.detail) == (7 if size == 1 else 1)
        sink.finish([staged], WHO, {"0": 9})
    assert place.documents("c") == {"1": {"id": 1, "n": 4}, "3": {"id": 3, "n": 5}}


def test_a_change_keeps_what_it_does_not_name_byte_by_byte(place: Place) -> None:
    big = '{"n": 1.10, "big": 123456789012345678901234567890, "gone": {"a": 1}}'
    place.ask("PUT", f"/{place.index('c')}", {"mappings": {"properties": {"j": {"type": "object", "enabled": False}}}})
    place.write(rows({"id": [1], "j": pa.array([big], pa.json_()), "a": [1], "b": [None]}), 1, mappings="leave")
    place.write(change({"id": [1], "a": [2]}, ["/j/gone/a", "/b", "/not/there"]), 2, mappings="leave")
    with contextlib.closing(place.writer()) as sink:
        raw = sink._cluster.raw("GET", f"/{place.index('c')}/_source/1", doing="looking")
    assert raw.replace(b" ", b"") == b'{"id":1,"j":{"n":1.10,"big":123456789012345678901234567890,"gone":{}},"a":2}'


def test_types_have_mappings(place: Place) -> None:
    moment = datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)
    columns = {
        "id": pa.array(["k"]),
        "small": pa.array([1], pa.int16()),
        "large": pa.array([2**60], pa.int64()),
        "unsigned": pa.array([2**64 - 1], pa.uint64()),
        "price": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
        "half": pa.array([0.5], pa.float64()),
        "yes": pa.array([True]),
        "at": pa.array([moment], pa.timestamp("us", "UTC")),
        "fine": pa.array([1709208000000000001], pa.int64()).cast(pa.timestamp("ns", "UTC")),
        "day": pa.array([moment.date()], pa.date32()),
        "text": pa.array(["Two words"]),
        "uuid": pa.array([b"x" * 16], pa.uuid()),
        "bytes": pa.array([b"\0\xff"], pa.binary()),
        "list": pa.array([[1, 2]], pa.list_(pa.int32())),
        "struct": pa.array([{"a": {"b": moment}}]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "json": pa.array(['{"deep":\n [1, 2]}'], pa.json_()),
        "none": pa.nulls(1),
        "a.b": pa.array([1]),
    }
    place.write(rows(columns), 1)
    place.write(rows({**columns, "later": pa.array([1.5])}), 2)
    found = place.ask("GET", f"/{place.index('c')}/_mapping")[place.index("c")]["mappings"]["properties"]
    kinds = {name: one.get("type") for name, one in found.items()}
    text = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
    assert found.pop("text") == text
    assert kinds == {
        "id": "keyword", "small": "short", "large": "long", "unsigned": "unsigned_long", "price": "double",
        "half": "double", "yes": "boolean", "at": "date", "fine": "date", "day": "date", "text": "text",
        "uuid": "keyword", "bytes": "binary", "list": "integer", "struct": None, "map": None, "json": None, "a": None,
        "later": "double",
    }  # fmt: skip
    assert found["struct"]["properties"]["a"]["properties"]["b"] == {"type": "date"}
    assert found["a"]["properties"] == {"b": {"type": "long"}}
    assert place.documents("c")["k"] == {
        "id": "k", "small": 1, "large": 2**60, "unsigned": 2**64 - 1, "price": "1.10", "half": 0.5, "yes": True,
        "at": "2024-02-29T12:00:00.001000Z", "fine": "2024-02-29T12:00:00.000000001Z", "day": "2024-02-29",
        "text": "Two words", "uuid": "78787878-7878-7878-7878-787878787878", "bytes": "AP8=", "list": [1, 2],
        "struct": {"a": {"b": "2024-02-29T12:00:00.001000Z"}}, "map": {"k": 1}, "json": {"deep": [1, 2]},
        "none": None, "a.b": 1, "later": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "keys", "id"),
    [
        ({"id": ["a/b ?#é\n"]}, ["id"], "a/b ?#é\n"),
        ({"id": pa.array([b"\0\xff"], pa.binary())}, ["id"], "00ff"),
        ({"b": [7], "a": ["eu\x1f\x1b"]}, ["a", "b"], '["eu\\u001f\\u001b","7"]'),
        ({"a": ["x"], "b": pa.array([None], pa.string())}, ["a", "b"], '["x",null]'),
        ({"_id": ["mine"], "n": [1]}, ["_id"], "mine"),
    ],
)
def test_ids(place: Place, columns: dict[str, Any], keys: list[str], id: str) -> None:
    place.write(rows(columns, keys), 1)
    assert list(place.documents("c")) == [id]
    assert "_id" not in place.documents("c")[id]
    place.write(rows(columns, keys, op=Op.DELETE), 2)
    assert place.documents("c") == {}


def test_rows_without_a_key_have_their_place_as_id(place: Place) -> None:
    batch = placed(rows({"a": [1, 1]}, ()), 3, pa.array([7, 8], pa.int64()))
    for offset in (1, 2):
        place.write(batch, offset)
    assert place.documents("c") == {"3-7": {"a": 1}, "3-8": {"a": 1}}
    with pytest.raises(NotReady, match="has no key"):
        place.write(rows({"a": [1]}, (), op=Op.DELETE), 3)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": ["1", "x" * 513]}, "513 bytes"),
        ({"id": ["1", ""]}, "0 bytes"),
        ({"id": ["1", "2"], "n": pa.array([1.0, float("nan")])}, "failed to parse field .n. of type .double."),
        ({"id": ["1", "2"], "j": pa.array(["{}", '"text"'], pa.json_())}, "another index"),
    ],
)
def test_a_row_that_the_index_cannot_hold(place: Place, columns: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected, match=why) as refused:
        place.write(rows(columns), 1)
    assert refused.value.namespace == "c"
    assert refused.value.id == columns["id"][1]


def test_a_type_that_has_changed_says_the_steps(place: Place) -> None:
    place.write(rows({"id": [1], "n": [1]}), 1)
    with pytest.raises(Rejected, match=r"type of the field has changed.*index = .*tailrace offset delete"):
        place.write(rows({"id": [1], "n": ["one"]}), 2)
    other = place.index("again-{namespace}")
    with pytest.raises(NotReady, match=r"now says .*again-c, which would get only what comes from now on"):
        place.write(rows({"id": [1], "n": ["one"]}), 2, index=other)
    with contextlib.closing(place.writer()) as sink:
        sink.forget(WHO)
    place.write(rows({"id": [1], "n": ["one"]}), 2, index=other)
    assert place.documents("again-c") == {"1": {"id": 1, "n": "one"}}


def test_names_of_indexes(place: Place) -> None:
    names = ["public.orders", "Orders", "orders", "ORDERS", "_hidden", "a/b", "a~2fb", "über", "..", "x" * 300]
    with contextlib.closing(place.writer()) as sink:
        staged = [sink.stage([rows({"id": [n]}, name=name)]) for n, name in enumerate(names)]
        sink.finish(staged, WHO, {"0": 1})
        assert {sink._places.name("Orders"), sink._places.name("a/b")} == {
            place.index("~4frders"),
            place.index("a~2fb"),
        }
        for n, name in enumerate(names):
            found = sink._cluster.search(sink._places.name(name), {"query": {"ids": {"values": [str(n)]}}}, "looking")
            assert isinstance(found["hits"]["hits"], list)
        for name in names:
            assert not sink._cluster.is_empty(sink._places.name(name))
    with (
        contextlib.closing(place.writer(index="Shop-{namespace}")) as sink,
        pytest.raises(NotReady, match="lower case"),
    ):
        sink.check()


def test_two_namespaces_for_one_index(place: Place) -> None:
    with (
        contextlib.closing(place.writer(index=place.index("all"))) as sink,
        pytest.raises(NotReady, match="would both be written"),
    ):
        sink.finish([sink.stage([rows({"id": [1]}, name="x"), rows({"id": [1]}, name="y")])], WHO, {"0": 1})


def test_routing(place: Place) -> None:
    columns = {"tenant": ["a", "b"], "n": [1, 2]}
    place.write(rows(columns, ["tenant", "n"]), 1, routing="tenant", shards=5)
    assert {hit["_id"]: hit["_routing"] for hit in place.hits("c")} == {'["a","1"]': "a", '["b","2"]': "b"}
    place.write(rows({"tenant": ["a"], "n": [1]}, ["tenant", "n"], op=Op.DELETE), 2, routing="tenant")
    assert list(place.documents("c")) == ['["b","2"]']
    with pytest.raises(NotReady, match="not a field of the key"):
        place.write(rows({"id": [1], "tenant": ["a"]}), 3, routing="tenant")


def test_commands(place: Place) -> None:
    place.write(rows({"id": [1, 2], "n": [1, 1]}), 1)
    with contextlib.closing(place.writer()) as sink:
        for _ in range(2):
            sink.command("c", Command(TRUNCATE), WHO)
        assert place.documents("c") == {}
        assert sink.lost(WHO) == []
        place.write(rows({"id": [2], "n": [2]}), 2)  # at once, while the index remembers the deletes
        assert place.documents("c") == {"2": {"id": 2, "n": 2}}
        for _ in range(2):
            sink.command("c", Command(DROP), WHO)
        assert place.ask("GET", f"/_cat/indices/{place.index('c*')}?format=json") == []
        assert sink.lost(WHO) == []
    place.write(rows({"id": [3], "n": [3]}), 3)
    assert list(place.documents("c")) == ["3"]


def test_what_is_gone_is_noticed(place: Place) -> None:
    place.write(rows({"id": [1, 2]}), 1)
    with contextlib.closing(place.writer()) as sink:
        assert sink.lost(WHO) == []
        place.ask("POST", f"/{place.index('c')}/_delete_by_query?refresh=true", {"query": {"match_all": {}}})
        assert sink.lost(WHO) == [f"the index {place.index('c')}"]
        place.write(rows({"id": [1, 2]}), 2)
        assert sink.lost(WHO) == []
        place.ask("DELETE", f"/{place.index('c')}")
        assert sink.lost(WHO) == [f"the index {place.index('c')}"]
        with pytest.raises(NotReady, match="is gone, or was emptied"):
            place.write(rows({"id": [3]}), 3)
        place.ask("PUT", f"/{place.index('c')}")  # made again by another program
        assert sink.lost(WHO) == [f"the index {place.index('c')}"]
        sink.forget(WHO)
        assert sink.lost(WHO) == []


def test_an_index_that_is_dropped_while_it_is_written(place: Place) -> None:
    """OpenSearch makes another one by itself, for the rows of this batch alone."""
    with contextlib.closing(place.writer()) as sink:
        sink.finish([sink.stage([rows({"id": [1, 2]})])], WHO, {"0": 1})
        place.ask("DELETE", f"/{place.index('c')}")
        with pytest.raises(NotReady, match="is gone, or was emptied"):
            sink.finish([sink.stage([rows({"id": [3]})])], WHO, {"0": 2})
        assert sink.restore(*WHO[:2]) == {"epoch": 1, "offsets": {"0": 1}}


def test_an_alias_of_one_index_may_be_moved(place: Place) -> None:
    one, other, alias = place.index("c-1"), place.index("c-2"), place.index("c")
    place.ask("PUT", f"/{one}", {"aliases": {alias: {}}})
    place.write(rows({"id": [1], "n": [1]}), 1)
    place.ask("PUT", f"/{other}", {})
    place.ask("POST", f"/{one}/_refresh")
    body = {"source": {"index": one}, "dest": {"index": other, "version_type": "external"}}
    place.ask("POST", "/_reindex?refresh=true", body)
    moves = [{"remove": {"index": one, "alias": alias}}, {"add": {"index": other, "alias": alias}}]
    place.ask("POST", "/_aliases", {"actions": moves})
    with contextlib.closing(place.writer()) as sink:
        assert sink.lost(WHO) == []
    place.write(rows({"id": [1], "n": [2]}), 2)
    assert place.documents("c-2") == {"1": {"id": 1, "n": 2}}
    place.ask("POST", "/_aliases", {"actions": [{"add": {"index": one, "alias": alias}}]})
    with pytest.raises(NotReady, match="several indexes"):
        place.write(rows({"id": [1], "n": [3]}), 3, who=Who("other", "writer", 1))


def test_an_ingest_pipeline(place: Place) -> None:
    with (
        contextlib.closing(place.writer(ingest="not-made")) as sink,
        pytest.raises(NotReady, match="ingest pipeline not-made"),
    ):
        sink.check()
    name = place.index("upper")
    place.ask("PUT", f"/_ingest/pipeline/{name}", {"processors": [{"uppercase": {"field": "n"}}]})
    place.write(rows({"id": [1], "n": ["x"]}), 1, ingest=name)
    assert place.documents("c") == {"1": {"id": 1, "n": "X"}}
    place.ask("DELETE", f"/_ingest/pipeline/{name}")


def test_a_batch_that_searches_see(place: Place) -> None:
    place.write(rows({"id": [1]}), 1, refresh="wait")
    assert place.ask("GET", f"/{place.index('c')}/_count")["count"] == 1
