"""`tailrace topic append`: every format, and what is said of rows that are not right."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.cli.topic.sources import READ_BYTES, InputFormat, portions
from tailrace.errors import BadInput, BadRecord
from tests.cli.runs import Cli


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A home with a topic `orders` of three partitions."""
    cli("topic", "create", "orders", "-p", 3)
    return cli


def pairs(cli: Cli, topic: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
    with tailrace.open(cli.home) as home:
        return sorted(((r.key, r.value) for r in home.topic(topic).records()), key=repr)


def test_lines_from_stdin(orders: Cli) -> None:
    said = orders("topic", "append", "orders", input=b"one\n\ntw\xff\x00o\r\nthree").out
    assert said.startswith("appended 4 records to 'orders' in ")
    assert pairs(orders) == sorted([(None, b""), (None, b"one"), (None, b"three"), (None, b"tw\xff\x00o\r")], key=repr)


def test_lines_from_files_and_from_a_dash(orders: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n")
    done = orders("topic", "append", "orders", tmp_path / "a.txt", "-", "--partition", 2, "--json", input="b\nc\n").json
    assert done == {
        "topic": "orders",
        "records": 3,
        "skipped": 0,
        "partitions": [{"partition": 2, "first": 0, "last": 2, "records": 3}],
    }
    assert [value for _, value in pairs(orders)] == [b"a", b"b", b"c"]


def test_nothing_at_all(orders: Cli) -> None:
    assert "appended 0 records" in orders("topic", "append", "orders", input="").out


def test_jsonl_with_a_key(orders: Cli, tmp_path: Path) -> None:
    rows = [{"id": "a", "n": 1}, {"id": 7}, {"id": None}, {"id": {"x": [1, 2]}}, {"id": "é"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    orders("topic", "append", "orders", path, "--key", "id")
    values = {key: json.loads(value or b"") for key, value in pairs(orders)}
    assert values == {b"a": rows[0], b"7": rows[1], None: rows[2], b'{"x":[1,2]}': rows[3], "é".encode(): rows[4]}


def test_records_without_a_key_in_a_compacted_topic_are_remarked_upon(orders: Cli, tmp_path: Path) -> None:
    orders("topic", "set", "orders", "compact=true")
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    assert "--key names the field" in orders("topic", "append", "orders", tmp_path / "a.jsonl").err
    assert not orders("topic", "append", "orders", tmp_path / "a.jsonl", "--key", "id").err


def test_with_a_key_stdin_is_jsonl(orders: Cli) -> None:
    orders("topic", "append", "orders", "--key", "id", input='{"id":"a"}\n')
    assert pairs(orders) == [(b"a", b'{"id":"a"}')]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{nope", "rows.jsonl, line 3: JSON is malformed"),
        ('{"other":1, "more": 2}', "rows.jsonl, line 3: it has no field 'id'; it has 'other', 'more'"),
        ("[1]", "rows.jsonl, line 3: a list has no field 'id'; it is no JSON object"),
    ],
)
def test_a_bad_row_is_named_and_what_is_before_it_is_kept(orders: Cli, tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"id":1}}\n{{"id":2}}\n{line}\n{{"id":4}}\n')
    err = orders.fails("topic", "append", "orders", path, "--key", "id").err
    assert said in err
    assert err.endswith("; 2 records before it appended")
    assert [key for key, _ in pairs(orders)] == [b"1", b"2"]


def test_a_bad_row_far_into_a_file_is_named_too(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n' * 60_000 + "nope\n")
    assert "rows.jsonl, line 60001: JSON is malformed" in orders.fails("topic", "append", "orders", path).err


def test_bad_rows_can_be_passed_over(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id":1}\nnope\n{"id":3}\nnope\n')
    ran = orders("topic", "append", "orders", path, "--key", "id", "--skip-bad")
    assert ran.out.startswith("appended 2 records")
    assert ran.out.endswith(", passed over 2 bad rows\n")
    assert [f"line {n}:" in text for n, text in zip((2, 4), ran.err.splitlines(), strict=True)] == [True, True]
    assert [key for key, _ in pairs(orders)] == [b"1", b"3"]


def test_csv_rows_become_objects(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufeffid,name\r\n1,Ann\r\n2,"B\r\nob, jr"\r\n\r\n3,Zoë\r\n'.encode())
    orders("topic", "append", "orders", path, "--key", "id")
    assert pairs(orders) == [
        (b"1", b'{"id":"1","name":"Ann"}'),
        (b"2", b'{"id":"2","name":"B\\r\\nob, jr"}'),
        (b"3", '{"id":"3","name":"Zoë"}'.encode()),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"4", "line 5: it has 1 field, and the first line names 2"),
        (b"4,x,y", "line 5: it has 3 fields, and the first line names 2"),
        (b"4,\xff", "line 5: it is not UTF-8"),
        (b'4,"x"y', "line 5: "),
    ],
)
def test_a_bad_csv_row_is_named_by_its_line(orders: Cli, tmp_path: Path, row: bytes, said: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,name\n1,Ann\n2,"B\nob"\n' + row + b"\n5,Eve\n")
    err = orders.fails("topic", "append", "orders", path, "--key", "id").err
    assert said in err
    assert err.endswith("; 2 records before it appended")
    orders("topic", "append", "orders", path, "--key", "id", "--skip-bad")
    assert [key for key, _ in pairs(orders)] == [b"1", b"1", b"2", b"2", b"5"]


def test_a_csv_without_the_key_column(orders: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,Ann\n")
    err = orders.fails("topic", "append", "orders", tmp_path / "rows.csv", "--key", "nam").err
    assert "has no column 'nam'; its first line names 'id', 'name'" in err


def test_parquet_rows_become_objects(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "value": [1.5, None], "raw": [b"a", b"\xff"]}), path)
    orders("topic", "append", "orders", path, "--key", "id")
    assert pairs(orders) == [
        (b"1", b'{"id":1,"value":1.5,"raw":"a"}'),
        (b"2", b'{"id":2,"value":null,"raw":{"base64":"/w=="}}'),
    ]
    orders("topic", "append", "orders", path)
    assert len(pairs(orders)) == 4, "a column called value among others is no record's value"


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_what_read_writes_comes_back_whole(orders: Cli, tmp_path: Path, format: str) -> None:
    with tailrace.open(orders.home) as home, home.topic("orders").producer() as out:
        out.send(b"k\xff", b"v\x00", timestamp=5, headers={"a": b"1"}, mode=1, op=2)
        out.send(None, None, timestamp=6)
    path = tmp_path / f"out.{format}"
    orders("topic", "read", "orders", "--format", format, "--output", path)
    orders("topic", "create", "copy")
    orders("topic", "append", "copy", path)
    with tailrace.open(orders.home) as home:
        one, two = (sorted(home.topic(t).records(), key=lambda r: r.timestamp) for t in ("orders", "copy"))
    assert [r[3:] for r in one] == [r[3:] for r in two]


def test_parquet_from_a_pipe(orders: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [b"x"]}), tmp_path / "rows.parquet")
    ran = orders.process(
        "topic", "append", "orders", "--format", "parquet", input=(tmp_path / "rows.parquet").read_bytes()
    )
    assert ran.code == 0, ran
    assert pairs(orders) == [(None, b"x")]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_file_that_is_none(orders: Cli, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"rows.{format}"
    path.write_bytes(b"not what its name says" * 10)
    assert f"rows.{format} is no {format} file, or is damaged" in orders.fails("topic", "append", "orders", path).err


def test_what_cannot_be_done(orders: Cli, tmp_path: Path) -> None:
    assert "cannot read " in orders.fails("topic", "append", "orders", tmp_path / "nowhere.csv").err
    (tmp_path / "a.txt").write_text("a\n")
    err = orders.fails("topic", "append", "orders", "--format", "lines", "--key", "id", input="a\n").err
    assert "plain lines have no fields to take a --key from" in err
    assert "there is no partition 9" in orders.fails("topic", "append", "orders", "--partition", 9, input="a\n").err
    orders.fails("topic", "append", "orders", "--format", "xml", input="a\n", code=2)
    orders("topic", "set", "orders", "max_record_bytes=10")
    err = orders.fails("topic", "append", "orders", input="short\n" + "long" * 10 + "\n").err
    assert "-, line 2: it has more bytes than a record of the topic may have, 10" in err


def test_many_lines_over_several_reads(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"".join(b"line %d %s\n" % (n, b"x" * (n % 100)) for n in range(30_000)))
    done = orders("topic", "append", "orders", path, "--partition", 0, "--json").json
    assert done["partitions"] == [{"partition": 0, "first": 0, "last": 29_999, "records": 30_000}]
    with tailrace.open(orders.home) as home:
        values = [record.value for record in home.topic("orders").records(0)]
    assert b"".join(v + b"\n" for v in values if v is not None) == path.read_bytes()


# --- long lines
class Counted(io.BytesIO):
    """A stream of one line without an end, and how much of it was read."""

    given = 0

    def read1(self, size: int | None = -1, /) -> bytes:
        self.given += size or 0
        return b"x" * (size or 0)


@pytest.mark.parametrize("format", [InputFormat.lines, InputFormat.jsonl, InputFormat.csv])
def test_a_long_line_is_refused_as_soon_as_it_is_over_the_limit(format: InputFormat) -> None:
    def refuse(error: BadRecord) -> None:
        raise error

    stream, limit = Counted(), 3 * READ_BYTES + 5
    with pytest.raises(BadInput, match=r"than a record of the topic may have, 786,437|field larger than"):
        list(portions(stream, "-", format, None, refuse, limit))
    assert stream.given <= limit + 2 * READ_BYTES


@pytest.mark.parametrize("before", [0, 1, READ_BYTES - 1, READ_BYTES, 3 * READ_BYTES])
@pytest.mark.parametrize("size", [50, 51, READ_BYTES, READ_BYTES + 1, 5 * READ_BYTES + 3])
def test_a_long_line_is_passed_over_alone(before: int, size: int) -> None:
    lines = [b"a" * 50, *[b"b" * 49] * (before // 50), b"c" * size, b"", b"d" * 50, b"e"]
    told: list[str] = []
    found = portions(io.BytesIO(b"\n".join(lines)), "rows", InputFormat.lines, None, lambda e: told.append(str(e)), 50)
    assert [value for some, _ in found for _, value in some] == [line for line in lines if len(line) <= 50]
    assert len(told) == (size > 50)
    assert all(f"rows, line {before // 50 + 2}: it has more bytes" in text for text in told)
