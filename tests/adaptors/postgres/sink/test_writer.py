"""The writer, against real servers."""

from __future__ import annotations

import contextlib
import datetime
import pickle
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Command, Staged, Who
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.sql.staged_rows import new_table
from tailrace.adaptors.sql.state import ORPHANED_SECONDS
from tailrace.errors import BadInput, NotReady, Rejected
from tailrace.log.record import Mode, Op
from tailrace.testing.writercontract import WriterContract
from tests.adaptors.documents_table import NAMESPACE, DocumentsTable, rows
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


class TestContract(WriterContract):
    @pytest.fixture
    def sink(self, sink: Place) -> DocumentsTable:
        return DocumentsTable(sink, "public.documents")


FEW, MANY = 10, 5000
"""Rows that travel with the answer, and rows that are staged in a table."""


def write(place: Place, *batches: pa.RecordBatch, offset: int = 1, **settings: Any) -> list[Staged]:
    with contextlib.closing(place.writer(**settings)) as writer:
        staged = [writer.stage(batches)]
        writer.finish(staged, WHO, {"0": offset})
    return staged


WHO = Who("pipeline", "writer", 1)


OURS = [
    "op",
    "unset",
    "n",
    "c0",
    "c1",
    "rest",
    "s",
    "t",
    "key",
    "data",
    "timestamp",
    "attributes",
    "group",
    "at",
    "sign",
]
"""Names that the writer itself gives to columns and tables."""


class TestColumnsOfAnyName:
    @pytest.mark.parametrize("count", [FEW, MANY])
    @pytest.mark.parametrize("keys", [("op",), ("unset", "n"), ()])
    def test_come_and_go(self, sink18: Place, keys: tuple[str, ...], count: int) -> None:
        columns = {name: pa.array(range(count), pa.int64()) for name in OURS}
        write(sink18, rows(columns, keys), create=True)
        changed = columns if not keys else {**columns, "key": pa.array([7] * count, pa.int64())}
        unset = (
            pa.array([None, b"\x00\x04"] * (count // 2), pa.binary()) if keys else None
        )  # of every other `timestamp`
        nothing = pa.array([None] * count, pa.int64())  # and every other one is not even sent
        changed = {**changed, "timestamp": nothing} if keys else changed
        write(sink18, rows(changed, keys, op=Op.UPDATE if keys else Op.DELETE, unset=unset), offset=2)
        found = sink18.ask('SELECT "key", "timestamp", "op" FROM t ORDER BY "op"')
        assert found == [(7, n if n % 2 else None, n) for n in range(count) if keys]
        if keys:
            write(sink18, rows(columns, keys, op=Op.DELETE), offset=3)
        assert sink18.ask("SELECT count(*) FROM t") == [(0,)]


def lost(place: Place) -> list[str]:
    with contextlib.closing(place.writer()) as writer:
        return writer.lost(WHO)


class TestWhatIsLost:
    """The sink's tables were dropped or emptied by somebody else."""

    @pytest.mark.parametrize("how", ["DROP TABLE t", "TRUNCATE t"])
    @pytest.mark.parametrize("again", [False, True])
    def test_a_table_that_is_gone_is_not_made_anew(self, sink18: Place, how: str, again: bool) -> None:
        with contextlib.closing(sink18.writer(create=True)) as writer:
            writer.finish([writer.stage([rows({"id": list(range(MANY))})])], WHO, {"0": 1})
            sink18.run(how)
            if again and how.startswith("DROP"):
                sink18.run("CREATE TABLE t (id bigint PRIMARY KEY)")
            with pytest.raises(NotReady, match=r"gone, or was emptied.*offset delete pipeline writer"):
                writer.finish([writer.stage([rows({"id": [7]})])], WHO, {"0": 2})
        with contextlib.closing(sink18.writer(create=True)) as writer:
            assert writer.lost(WHO) == ['the table "public"."t"']
            with pytest.raises(NotReady, match="gone, or was emptied"):
                writer.finish([writer.stage([rows({"id": [7]})])], WHO, {"0": 2})
            writer.forget(WHO)
            assert writer.lost(WHO) == []
            writer.finish([writer.stage([rows({"id": [7]})])], WHO, {"0": 2})
        assert sink18.texts("t") == ["(7)"]

    def test_what_the_writer_itself_empties_is_not_lost(self, sink18: Place) -> None:
        batch = rows({"id": [1, 2]})
        write(sink18, batch, create=True)
        write(sink18, rows({"id": [1, 2]}, op=Op.DELETE), offset=2)
        assert lost(sink18) == []
        write(sink18, batch, offset=3)
        with contextlib.closing(sink18.writer()) as writer:
            writer.command(NAMESPACE, Command("truncate"), WHO)
        assert lost(sink18) == []
        write(sink18, batch, offset=4)
        sink18.run("VACUUM FULL t")
        write(sink18, batch, offset=5)
        assert lost(sink18) == []
        sink18.run("DELETE FROM t")
        assert lost(sink18) == ['the table "public"."t"']

    @pytest.mark.parametrize(
        "how",
        ["ALTER TABLE t ALTER v TYPE text", "ALTER TABLE t ALTER id TYPE numeric", "VACUUM FULL t",
         "CLUSTER t USING t_pkey", "ALTER TABLE t SET UNLOGGED", "ALTER TABLE t ADD more float8 DEFAULT random()"],
    )  # fmt: skip
    def test_a_table_that_is_rewritten_is_not_lost(self, sink18: Place, how: str) -> None:
        """It has another file from then on, as after a TRUNCATE."""
        with contextlib.closing(sink18.writer(create=True)) as writer:
            writer.finish([writer.stage([rows({"id": [1, 2], "v": [1, 2]})])], WHO, {"0": 1})
            sink18.run(how)
            writer.finish([writer.stage([rows({"id": [3], "v": [3]})])], WHO, {"0": 2})
            assert writer.lost(WHO) == []
            sink18.run(how.replace("more", "again").replace("TYPE text", "TYPE varchar(9)"))
            sink18.run("TRUNCATE t")
            with pytest.raises(NotReady, match="gone, or was emptied"):
                writer.finish([writer.stage([rows({"id": [4], "v": [4]})])], WHO, {"0": 3})

    def test_a_sink_of_an_earlier_version_goes_on(self, sink18: Place) -> None:
        write(sink18, rows({"id": [1]}), create=True)
        sink18.run("DROP TABLE tailrace.tables")
        assert sink18.writer().restore("pipeline", "writer") is not None
        assert lost(sink18) == []
        write(sink18, rows({"id": [2]}), offset=2)
        assert sink18.texts("t") == ["(1)", "(2)"]


def test_normal_work_leaves_no_errors_in_the_servers_log(sink18: Place) -> None:
    sink18.run("CREATE TABLE t (id bigint PRIMARY KEY)")
    log = Path(sink18.ask("SHOW data_directory")[0][0]).parent / "server.log"
    begin = log.stat().st_size
    copied = [
        make_rows(NAMESPACE, pa.record_batch({"id": list(range(n, n + MANY))}), ["id"], mode=Mode.COPY)
        for n in (0, MANY, MANY // 2)  # the last: a piece that is copied once more
    ]
    with contextlib.closing(sink18.writer()) as writer:
        for offset, batch in enumerate([*copied[:2], rows({"id": list(range(MANY))}, op=Op.UPDATE)]):
            writer.finish([writer.stage([batch])], WHO, {"0": offset})
    with contextlib.closing(sink18.writer()) as writer:
        writer.finish([writer.stage([copied[2]])], WHO, {"0": 9})
    assert sink18.ask("SELECT count(*) FROM t") == [(2 * MANY,)]
    assert b"ERROR" not in log.read_bytes()[begin:]


class TestTwoNamespaces:
    def test_that_would_be_one_table_are_refused(self, sink18: Place) -> None:
        here, there = (make_rows(name, pa.record_batch({"id": [1]}), ["id"]) for name in ("public.t", "sales.t"))
        with pytest.raises(NotReady, match=r"sales\.t and public\.t would both be written to"):
            write(sink18, here, there, create=True, schema="warehouse")
        write(sink18, here, create=True, schema="warehouse")
        with pytest.raises(NotReady, match=r"sales\.t and public\.t would both be written to"):
            write(sink18, there, offset=2, create=True, schema="warehouse")

    @pytest.mark.parametrize("name", ["tailrace.offsets", "pg_catalog.pg_class"])
    def test_none_is_written_into_a_schema_of_ours_or_of_the_servers(self, sink18: Place, name: str) -> None:
        with pytest.raises(NotReady, match="own; move it on its way"):
            write(sink18, make_rows(name, pa.record_batch({"id": [1]}), ["id"]), create=True)


class TestMaking:
    def test_a_missing_table(self, sink18: Place) -> None:
        batch = rows({"id": pa.array([1], pa.int32()), "at": pa.array([0], pa.timestamp("us", "UTC"))})
        with pytest.raises(NotReady, match="create = true") as caught:
            write(sink18, batch)
        sink18.run(str(caught.value).rsplit("or: ", 1)[1])
        write(sink18, batch)
        assert sink18.texts("t") == ['(1,"1970-01-01 00:00:00+00")']

    def test_a_missing_column(self, sink18: Place) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY)")
        batch = rows({"id": [1], "more": pa.array([Decimal("1.5")], pa.decimal128(5, 2))})
        with pytest.raises(NotReady, match="has no column more; set alter = true, or: ") as caught:
            write(sink18, batch)
        sink18.run(str(caught.value).rsplit("or: ", 1)[1])
        write(sink18, batch)
        assert sink18.texts("t") == ["(1,1.50)"]

    def test_a_view_in_its_place(self, sink18: Place) -> None:
        sink18.run("CREATE VIEW t AS SELECT 1 AS id")
        batch = rows({"id": [2]})
        with pytest.raises(NotReady, match=r'public\.t: "public"\."t" of the sink is not a table; drop or rename it'):
            write(sink18, batch, create=True)
        sink18.run("DROP VIEW t")
        write(sink18, batch, create=True)
        assert sink18.texts("t") == ["(2)"]

    def test_types_of_other_sources(self, sink18: Place) -> None:
        columns = {
            "id": pa.array([1, 2], pa.uint8()),
            "i8": pa.array([-1, None], pa.int8()),
            "u64": pa.array([2**64 - 1, None], pa.uint64()),
            "f16": pa.array([1.5, None], pa.float16()),
            "large": pa.array(["x", None], pa.large_string()),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "d64": pa.array([datetime.date(2024, 1, 1), None], pa.date64()),
            "t32": pa.array([datetime.time(1, 2, 3), None], pa.time32("s")),
            "ns": pa.array([1_000_000_001, None], pa.timestamp("ns")),
            "took": pa.array([1500, None], pa.duration("ms")),
            "span": pa.array([pa.MonthDayNano([1, 2, 3000]), None], pa.month_day_nano_interval()),
            "list": pa.array([[1, None], None], pa.list_(pa.int64())),
            "lists": pa.array([[["a"], []], None], pa.list_(pa.list_(pa.string()))),
            "struct": pa.array([{"a": 1, "b": "x"}, None]),
            "doc": pa.array(['{"a": 1}', None], pa.json_()),
            "uuid": pa.array([b"0123456789abcdef", None], pa.uuid()),
            "dict": pa.array(["x", None]).dictionary_encode(),
            "big": pa.array([Decimal("1e50"), None], pa.decimal256(60, 2)),
            "null": pa.nulls(2),
        }
        for offset, repeat in enumerate((1, 2000)):
            some = {name: pa.concat_arrays([array] * repeat) for name, array in columns.items()}
            some["id"] = pa.array(range(2 * repeat), pa.int32())
            sink18.run("DROP TABLE IF EXISTS t")
            staged = write(sink18, rows(some), offset=offset, create=True, state=f"state{repeat}")
            assert bool(staged[0].detail[0].table) == (repeat > 1)
            text = sink18.ask("SELECT to_jsonb(t) - 'id' FROM t WHERE id = 0")[0][0]
            assert text == {
                "i8": -1, "u64": 2**64 - 1, "f16": 1.5, "large": "x", "fixed": "\\x6162", "d64": "2024-01-01",
                "t32": "01:02:03", "ns": "1970-01-01T00:00:01", "took": "00:00:01.5",
                "span": "1 mon 2 days 00:00:00.000003",
                "list": [1, None], "lists": [["a"], []], "struct": {"a": 1, "b": "x"}, "doc": {"a": 1},
                "uuid": "30313233-3435-3637-3839-616263646566", "dict": "x", "big": 1e50, "null": None,
            }  # fmt: skip
            nulls = sink18.ask("SELECT num_nonnulls(t.*) FROM (SELECT * FROM t WHERE id = 1) t")
            assert nulls == [(1,)]

    def test_another_schema(self, sink18: Place) -> None:
        write(sink18, rows({"id": [1]}), schema="other", create=True)
        assert sink18.ask("SELECT count(*) FROM other.t") == [(1,)]
        with contextlib.closing(sink18.writer(schema="other")) as writer:
            writer.command(NAMESPACE, Command("truncate"), WHO)
        assert sink18.ask("SELECT count(*) FROM other.t") == [(0,)]

    def test_a_name_that_would_be_cut(self, sink18: Place) -> None:
        batch = make_rows("public." + "x" * 64, pa.RecordBatch.from_pydict({"id": [1]}), ["id"])
        with pytest.raises(NotReady, match="at most 63 bytes"):
            write(sink18, batch, create=True)

    def test_a_column_whose_name_would_be_cut(self, sink18: Place) -> None:
        """Cut, it would be missing however often it is added."""
        told = r"column x{64}: PostgreSQL's names have at most 63 bytes; rename it on its way"
        with pytest.raises(NotReady, match=told):
            write(sink18, rows({"id": [1], "x" * 64: [1]}), create=True, alter=True)
        write(sink18, rows({"id": [1], "x" * 63: [1]}), create=True)
        with pytest.raises(NotReady, match=told):
            write(sink18, rows({"id": [1], "x" * 64: [1]}), offset=2, alter=True)


class TestTryingOut:
    def test_what_would_fail_is_known_and_nothing_is_left(self, sink18: Place) -> None:
        with contextlib.closing(sink18.writer()) as writer:
            with pytest.raises(NotReady, match="the sink has no table for"):
                writer.try_out([rows({"id": [1]})])
            sink18.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(3))")
            with pytest.raises(Rejected, match="too long"):
                writer.try_out([rows({"id": [1], "v": ["long"]})])
            writer.try_out([rows({"id": [1], "v": ["a"]})])
        with contextlib.closing(sink18.writer(alter=True)) as writer:
            writer.try_out([rows({"id": [1], "more": ["x" * 1_000_000]})])
        assert sink18.ask("SELECT * FROM t") == []
        assert sink18.ask("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0") == [(2,)]
        assert sink18.ask("SELECT to_regnamespace('tailrace')") == [(None,)]


class TestMerging:
    def test_a_table_without_an_index_on_the_key(self, sink18: Place) -> None:
        sink18.run("CREATE TABLE t (id int, v text)")
        write(sink18, rows({"id": [1, 2], "v": ["a", "b"]}), offset=1)
        write(sink18, rows({"id": [2, 3], "v": ["c", "d"]}), offset=2)
        assert sink18.texts("t") == ["(1,a)", "(2,c)", "(3,d)"]

    def test_many_of_which_some_are_there(self, sink18: Place) -> None:
        """Who inserts them as they are must notice, and leave nothing half done."""
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with contextlib.closing(sink18.writer()) as writer:
            for offset, first in enumerate((0, MANY - 10, 3 * MANY)):
                ids = list(range(first + MANY, first, -1))
                batch = rows({"id": ids, "v": [f"{offset} {'x' * 20}"] * MANY})
                staged = [writer.stage([batch])]
                assert staged[0].detail[0].table, "it is staged in a table"
                writer.finish(staged, WHO, {"0": offset})
        found = sink18.ask("SELECT left(v, 1), count(*), min(id), max(id) FROM t GROUP BY 1 ORDER BY 1")
        ends = [(MANY - 10, 1, MANY - 10), (MANY, MANY - 9, 2 * MANY - 10), (MANY, 3 * MANY + 1, 4 * MANY)]
        assert found == [(str(n), *end) for n, end in enumerate(ends)]

    @pytest.mark.parametrize("other", [Op.DELETE, Op.UPDATE])
    def test_many_of_which_some_are_no_whole_rows(self, sink18: Place, other: Op) -> None:
        """What deletes a row, or has some of its columns, makes none, though no id is there yet."""
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        few = [id % 10 == 3 for id in range(MANY)]
        ops = pa.array([int(other if one else Op.INSERT) for one in few], pa.uint8())
        unset = pa.array([b"\x02" if one and other == Op.UPDATE else None for one in few], pa.binary())
        (staged,) = write(sink18, rows({"id": [*range(MANY)], "v": ["x" * 20] * MANY}, op=ops, unset=unset))
        assert staged.detail[0].table, "it is staged in a table"
        found = sink18.ask("SELECT count(*), count(*) FILTER (WHERE id % 10 = 3) FROM t")
        assert found == [(MANY * 9 // 10, 0)]

    def test_nothing_but_a_key(self, sink18: Place) -> None:
        for offset in range(2):
            write(sink18, rows({"id": [1, 2]}), offset=offset, create=True)
        assert sink18.texts("t") == ["(1)", "(2)"]

    def test_swapped_unique_values(self, sink18: Place) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE DEFERRABLE)")
        write(sink18, rows({"id": [1, 2], "email": ["a", "b"]}), offset=1)
        write(sink18, rows({"id": [1, 2], "email": ["b", "a"]}), offset=2)
        assert sink18.texts("t") == ["(1,b)", "(2,a)"]

    def test_columns_of_its_own(self, sink18: Place) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v text, mine text DEFAULT 'default')")
        write(sink18, rows({"id": [1], "v": ["a"]}), offset=1)
        sink18.run("UPDATE t SET mine = 'changed'")
        write(sink18, rows({"id": [1, 2], "v": ["b", "c"]}), offset=2)
        assert sink18.texts("t") == ["(1,b,changed)", "(2,c,default)"]

    def test_columns_in_json_go_into_arrays(self, sink18: Place) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, tags text[], n numeric[], doc jsonb)")
        columns = {"id": [1, 2], "tags": [["a", None], None], "n": [[1, 2], []], "doc": [[1], [2]]}
        write(sink18, rows(columns))
        assert sink18.texts("t") == ['(1,"{a,NULL}","{1,2}",[1])', "(2,,{},[2])"]

    def test_truncating_what_others_refer_to(self, sink18: Place) -> None:
        sink18.run(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int REFERENCES t); INSERT INTO t VALUES (1)"
        )
        with contextlib.closing(sink18.writer()) as writer:
            writer.command(NAMESPACE, Command("truncate"), WHO)
            writer.command("public.nothing", Command("truncate"), WHO)
            with pytest.raises(BadInput, match="no command 'vacuum'"):
                writer.command(NAMESPACE, Command("vacuum"), WHO)
        assert sink18.texts("t") == []

    def test_orphans_are_cleaned(self, sink18: Place) -> None:
        writer = sink18.writer(create=True)
        staged = writer.stage([rows({"id": range(MANY), "v": ["x" * 20] * MANY})])
        (unit,) = staged.detail
        old = new_table(int(time.time()) - 2 * ORPHANED_SECONDS)
        sink18.run(f"CREATE TABLE tailrace.{old} (n int); CREATE TABLE tailrace.stage_mine (n int)")
        assert sink18.writer().restore("p", "w") is None
        left = {name for (name,) in sink18.ask("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'")}
        assert left == {unit.table, "stage_mine"}
        writer.finish([staged], WHO, {"0": 1})
        left = {name for (name,) in sink18.ask("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'")}
        assert left == {"stage_mine"}
        writer.close()

    def test_a_failed_stage_leaves_nothing(self, sink18: Place) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield rows({"id": range(MANY), "v": ["x" * 100] * MANY})
            yield rows({"id": range(MANY), "other": ["x" * 100] * MANY})
            raise ZeroDivisionError

        writer = sink18.writer()
        with pytest.raises(ZeroDivisionError):
            writer.stage(batches())
        assert sink18.ask("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'") == []

    def test_a_command_is_not_a_row(self, sink18: Place) -> None:
        batch = rows({"command": ["truncate"]}, (), op=Op.COMMAND)
        with pytest.raises(BadInput, match="a command is not a row"):
            sink18.writer().stage([batch])


@pytest.mark.parametrize("count", [FEW, MANY])
class TestRefusals:
    """Each names table, column and id, and leaves the sink as it was."""

    @pytest.mark.parametrize(
        ("column", "good", "bad", "why"),
        [
            ("v int", "1", "x", "invalid input syntax for type integer"),
            ("v varchar(3)", "abc", "abcd", "value too long for type character varying"),
            ("v char(3)", "abc", "abcd", "value too long for type character"),
            ("v numeric(4,2)", "1.5", "123.4", "numeric field overflow"),
            ("v text NOT NULL", "x", None, "null value in column"),
            ("v int CHECK (v < 10)", "1", "11", "violates check constraint"),
            ("v date", "2024-01-01", "2024-02-30", "out of range"),
            ("v jsonb", "{}", "{", "invalid input syntax for type json"),
            ("v text", "x", "a\0b", "0x00"),
            ("v smallint", "1", "40000", "out of range for type smallint"),
        ],
    )
    def test_values(self, sink18: Place, count: int, column: str, good: str, bad: str | None, why: str) -> None:
        sink18.run(f"CREATE TABLE t (id int PRIMARY KEY, {column})")
        values = [bad if n == count - 3 else good for n in range(count)]
        pad = ["x" * 20] * count
        sink18.run("ALTER TABLE t ADD pad text")
        with pytest.raises(Rejected) as caught:
            write(sink18, rows({"id": range(count), "v": values, "pad": pad}))
        assert caught.value.namespace == NAMESPACE
        assert caught.value.id == str(count - 3)
        assert "column v" in str(caught.value) or "CHECK" in column
        assert why in str(caught.value)
        assert sink18.texts("t") == []
        assert sink18.writer().restore(WHO.pipeline, WHO.writer) is None
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.namespace, again.id, str(again)) == (NAMESPACE, caught.value.id, str(caught.value))
        write(sink18, rows({"id": range(count), "v": [good] * count, "pad": pad}))
        assert len(sink18.texts("t")) == count

    def test_a_unique_constraint(self, sink18: Place, count: int) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE, pad text)")
        emails = [f"e{n}" for n in range(count - 1)] + ["e0"]
        with pytest.raises(Rejected, match="duplicate key value") as caught:
            write(sink18, rows({"id": range(count), "email": emails, "pad": ["x" * 20] * count}))
        assert caught.value.id == str(count - 1)

    def test_a_type_that_does_not_match(self, sink18: Place, count: int) -> None:
        sink18.run("CREATE TABLE t (id int PRIMARY KEY, v timestamptz, pad text)")
        batch = rows({"id": range(count), "v": [True] * count, "pad": ["x" * 20] * count})
        with pytest.raises(Rejected, match=r"column v, id 0: .*boolean at the source, .* here: ALTER TABLE .* TYP"):
            write(sink18, batch)
        sink18.run("ALTER TABLE t DROP v; ALTER TABLE t ADD v boolean")
        write(sink18, batch)
        assert sink18.ask("SELECT count(*) FROM t WHERE v") == [(count,)]


class TestClaiming:
    def test_a_claim_is_not_a_finished_batch(self, sink18: Place) -> None:
        """Not even of one that ends where it began."""
        with contextlib.closing(sink18.writer(create=True)) as writer:
            assert writer.claim(WHO) is None
            assert writer.restore(WHO.pipeline, WHO.writer) is None
            writer.finish([writer.stage([rows({"id": [1]})])], WHO, {})
            assert writer.claim(WHO) == {"epoch": 1, "offsets": {}}
            writer.finish([writer.stage([rows({"id": [2]})])], WHO, {})
        assert sink18.texts("t") == ["(1)"]

    def test_a_sink_that_is_made_ready_later(self, sink18: Place) -> None:
        sink18.run("CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not now''; END'")
        sink18.run("CREATE EVENT TRIGGER no ON ddl_command_start WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION no()")
        with contextlib.closing(sink18.writer(create=True)) as writer:
            with pytest.raises(NotReady, match="making the state: not now"):
                writer.claim(WHO)
            sink18.run("DROP EVENT TRIGGER no")
            assert writer.claim(WHO) is None


class TestRights:
    def test_no_right_to_keep_offsets(self, sink18: Place) -> None:
        name = f"poor_{sink18.name}"
        sink18.run(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        poor = PostgresWriter(PostgresSink(uri=sink18.server.uri(sink18.name, user=name, password="x")))
        with pytest.raises(NotReady, match="GRANT CREATE ON DATABASE"):
            poor.check()
        sink18.run(f"GRANT CREATE ON DATABASE {sink18.name} TO {name}")
        poor.check()
        assert sink18.ask("SELECT to_regnamespace('tailrace')") == [(None,)]
        sink18.run(f"DROP OWNED BY {name}; DROP ROLE {name}")
