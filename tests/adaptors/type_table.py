"""The table of types in docs/guide/types.md, measured: every type of every source, written into every sink."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from bson import Binary, DatetimeMS, Decimal128, ObjectId, json_util

from tailrace.adaptors.contract import Reader, Who, Writer
from tailrace.adaptors.mongodb.extended_json import DECODED
from tailrace.adaptors.rows.rows import columns_of, make_rows
from tailrace.errors import Rejected
from tailrace.log.record import Mode, Op
from tests.adaptors.dynamodb.place import Place as Items
from tests.adaptors.mongodb.place import Place as Documents
from tests.adaptors.mysql.place import Place as Rows
from tests.adaptors.postgres.place import Place as Tables

WHO = Who("types", "sink", 1)
NAMESPACE = "shop.kinds"
AT_ONCE = 20
"""So many values are written as one batch."""
PRECISE = decimal.Context(prec=400, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX)


class Sample(NamedTuple):
    """A value of a source's type, as messages carry it: a column of one row."""

    type: str
    field: pa.Field[Any]
    value: pa.Array[Any]
    said: str


def samples(reader: Reader, namespace: str, names: Sequence[tuple[str, str]]) -> list[Sample]:
    """The columns of a table with one row; `names`: of each column its type, and how people write its value."""
    (batch,) = [batch for piece in reader.pieces(namespace, 1000) for batch in reader.copy(piece) if batch.num_rows]
    columns = columns_of(batch)
    found = {field.name: (field, columns.column(n)) for n, field in enumerate(columns.schema)}
    made = [Sample(kind, *found[f"c{n}"], said) for n, (kind, said) in enumerate(names)]
    return sorted(made, key=lambda sample: _is_fallback(sample.field.type))  # the usual values of a type come first


def _is_fallback(kind: pa.DataType) -> bool:
    """Whether values are carried as text or as JSON, which they also are where their own type does not hold them."""
    return pa.types.is_string(kind) or isinstance(kind, pa.JsonType) or pa.types.is_null(kind)


class Sink(Protocol):
    """A place that values are written to, and read from."""

    def writer(self) -> Writer: ...

    def look(self, id: int, column: str) -> tuple[str, Any]:
        """What a column is called there, or the type of the value; and the value."""


class PostgresSink:
    def __init__(self, place: Tables) -> None:
        self._place = place

    def writer(self) -> Writer:
        return self._place.writer(create=True, alter=True, schema="public")

    def look(self, id: int, column: str) -> tuple[str, Any]:
        sql = f"SELECT pg_typeof({column})::text, {column}::text FROM kinds WHERE id = {id}"
        ((kind, text),) = self._place.ask(sql)
        ((declared,),) = self._place.ask(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = 'kinds'::regclass AND attname = %s",
            column,
        )
        if text is None:
            return declared, None
        return declared, bytes.fromhex(text[2:]) if kind == "bytea" else {"t": True, "f": False}.get(text, text) if (
            kind == "boolean"
        ) else text


class MySQLSink:
    def __init__(self, place: Rows) -> None:
        self._place = place

    def writer(self) -> Writer:
        return self._place.writer(create=True, alter=True, schema=self._place.name)

    def look(self, id: int, column: str) -> tuple[str, Any]:
        ((kind,),) = self._place.ask(
            "SELECT COLUMN_TYPE FROM information_schema.COLUMNS "
            f"WHERE TABLE_SCHEMA = '{self._place.name}' AND TABLE_NAME = 'kinds' AND COLUMN_NAME = '{column}'"
        )
        ((value,),) = self._place.ask(
            f"SELECT {f'{column} + 0e0' if kind in ('float', 'double') else column} FROM kinds WHERE id = {id}"
        )
        if kind.startswith("bit"):
            value = int.from_bytes(value, "big")
        return kind, value


class MongoSink:
    def __init__(self, place: Documents) -> None:
        self._place = place

    def writer(self) -> Writer:
        return self._place.writer(database=self._place.name)

    def look(self, id: int, column: str) -> tuple[str, Any]:
        found = self._place.database.get_collection("kinds", codec_options=DECODED).find_one({"_id": id})
        assert found is not None
        aggregated = self._place["kinds"].aggregate(
            [{"$match": {"_id": id}}, {"$project": {"t": {"$type": f"${column}"}}}]
        )
        return next(iter(aggregated))["t"], found[column]


class DynamoSink:
    def __init__(self, place: Items) -> None:
        self._place = place

    def writer(self) -> Writer:
        return self._place.writer(prefix=self._place.prefix)

    def look(self, id: int, column: str) -> tuple[str, Any]:
        key = {"id": {"N": str(id)}}
        wire = self._place.client.get_item(TableName=f"{self._place.prefix}{NAMESPACE}", Key=key, ConsistentRead=True)
        value = wire["Item"][column]
        (found,) = (one[column] for one in self._place.items(f"{self._place.prefix}{NAMESPACE}") if one["id"] == id)
        return next(iter(value)), found


class Cell(NamedTuple):
    """What became of one value in one sink."""

    kind: str
    same: bool
    said: str
    got: str

    def __str__(self) -> str:
        return f"{self.said} → {self.got}"


@contextlib.contextmanager
def filled(sink: Sink) -> Iterator[Callable[[Sequence[Sample]], Iterator[Cell]]]:
    """A function that writes values into a sink, each as a row of its own, and looks at them there."""
    with contextlib.closing(sink.writer()) as writer:
        writer.claim(WHO)
        numbers = iter(range(1, 1_000_000))
        columns: dict[str, str] = {}

        def fill(values: Sequence[Sample]) -> Iterator[Cell]:
            for at in range(0, len(values), AT_ONCE):
                rows = {next(numbers): sample for sample in values[at : at + AT_ONCE]}
                for sample in rows.values():
                    columns.setdefault(sample.type, f"c{len(columns)}")
                refused = write({id: _row(id, sample, columns[sample.type]) for id, sample in rows.items()})
                for id, sample in rows.items():
                    yield refusal(sample) if id in refused else looked(sink, id, sample, columns[sample.type])

        def write(batches: dict[int, pa.RecordBatch]) -> set[int]:
            """All that are not refused; gives those that are."""
            refused: set[int] = set()
            while some := [batch for id, batch in batches.items() if id not in refused]:
                try:
                    writer.finish([writer.stage(some)], WHO, {"0": max(batches)})
                    break
                except Rejected as error:
                    refused.add(int(error.id))
            return refused

        yield fill


def _row(id: int, sample: Sample, column: str) -> pa.RecordBatch:
    fields = [pa.field("id", pa.int64()), sample.field.with_name(column)]
    made = pa.RecordBatch.from_arrays([pa.array([id], pa.int64()), sample.value], schema=pa.schema(fields))
    return make_rows(NAMESPACE, made, ["id"], op=Op.INSERT, mode=Mode.COPY)


def refusal(sample: Sample) -> Cell:
    """A value that a sink refuses."""
    return Cell("", same=False, said=sample.said, got="refused")


def looked(sink: Sink, id: int, sample: Sample, column: str) -> Cell:
    """What a sink has of a value."""
    kind, got = sink.look(id, column)
    (value,) = sample.value.to_pylist()
    single = pa.types.is_float32(sample.field.type)
    return Cell(kind, same=same(value, got, single=single), said=sample.said, got=shortened(got))


def shortened(value: object) -> str:
    """A value as the table writes it."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


# -- comparing
def same(sent: object, got: object, *, single: bool = False) -> bool:
    """Whether two systems mean the same by two values; `single`: numbers of 32 bits, however many digits they have."""
    if single:
        return struct.pack("<f", sent + 0.0) == struct.pack("<f", float(str(got)) + 0.0)
    forms = _forms(sent)
    return any(form in forms for form in _forms(got))


def _forms(value: Any) -> list[str]:
    """A value in each way that it can be understood, the most exact first; other systems have text for some."""
    if value is None:
        return ["null"]
    if isinstance(value, str):
        return [repr(value), *_read(value)]
    if isinstance(value, bool):
        return [str(value).lower(), str(int(value))]
    if isinstance(value, int | float | Decimal):
        return [_number(value)]
    if isinstance(value, Decimal128):
        return [_number(value.to_decimal()), repr(str(value))]
    if isinstance(value, uuid.UUID):
        return [repr(str(value))]
    if isinstance(value, Binary) and value.subtype in (3, 4):
        return [repr(str(uuid.UUID(bytes=bytes(value)))), bytes(value).hex()]
    if isinstance(value, bytes):
        return [bytes(value).hex()]
    if isinstance(value, DatetimeMS):
        return _moments(value)
    if isinstance(value, dt.datetime):
        return [_moment(value)]
    if isinstance(value, dt.date):
        return [f"{value.isoformat()}T00:00:00.000000"]
    if isinstance(value, dt.time):
        return [value.isoformat("microseconds")]
    if isinstance(value, dt.timedelta):
        return [_clock(value)]
    if isinstance(value, ObjectId):
        return [repr(str(value))]
    if isinstance(value, frozenset | set):
        return [_plain(sorted(value, key=repr))]
    if isinstance(value, list | dict):
        return [_plain(value), *_extended(value)]
    return [repr(value), *_extended(value)]


def _extended(value: Any) -> list[str]:
    with contextlib.suppress(TypeError):
        return [_plain(json.loads(json_util.dumps(value)))]
    return []


def _read(text: str) -> list[str]:
    out = []
    with contextlib.suppress(decimal.InvalidOperation):
        out.append(_number(PRECISE.create_decimal(text)))
    with contextlib.suppress(ValueError):
        out.append(_moment(dt.datetime.fromisoformat(text.replace("+00", "+00:00") if text.endswith("+00") else text)))
    with contextlib.suppress(ValueError):
        out.append(dt.time.fromisoformat(text).isoformat("microseconds"))
    with contextlib.suppress(ValueError, RecursionError):
        out.append(_plain(json.loads(text, parse_float=Decimal, parse_int=Decimal)))
    with contextlib.suppress(ValueError):
        out.append(repr(str(uuid.UUID(text))))
    return out


def _number(value: float | Decimal) -> str:
    number = PRECISE.create_decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite():
        return str(float(number))
    return "0" if number == 0 else str(number.normalize(PRECISE))


def _moment(value: dt.datetime) -> str:
    return (value.astimezone(dt.UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat("T", "microseconds")


def _moments(value: DatetimeMS) -> list[str]:
    with contextlib.suppress(OverflowError, ValueError):
        return [_moment(dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=int(value)))]
    return [str(int(value)), _plain(json.loads(json_util.dumps(value)))]


def _clock(value: dt.timedelta) -> str:
    with contextlib.suppress(OverflowError, ValueError):
        if dt.timedelta() <= value < dt.timedelta(days=1):
            return (dt.datetime.min + value).time().isoformat("microseconds")
    sign, rest = ("-", -value) if value < dt.timedelta() else ("", value)
    seconds, micros = divmod(rest // dt.timedelta(microseconds=1), 1_000_000)
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return repr(f"{text}.{micros:06}".rstrip("0") if micros else text)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_plain(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_plain, value)) + "]"
    if isinstance(value, frozenset):
        return _plain(sorted(value, key=repr))
    return _forms(value)[0]


# -- the page
def rendered(title: str, values: Sequence[Sample], cells: dict[str, list[Cell]]) -> str:
    """A section of the page."""
    head = ["type", "message", *cells]
    lines = [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for kind in dict.fromkeys(sample.type for sample in values):
        at = [n for n, sample in enumerate(values) if sample.type == kind]
        messages = dict.fromkeys(_arrow(values[n].field.type) for n in at)
        row = [
            _code(kind),
            ", ".join(map(_code, messages)),
            *(_cell([found[n] for n in at]) for found in cells.values()),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _arrow(kind: pa.DataType) -> str:
    return str(kind).removeprefix("extension<").removesuffix(">")


def _cell(found: Sequence[Cell]) -> str:
    kinds = dict.fromkeys(cell.kind for cell in found if cell.kind)
    refused = [cell.said for cell in found if cell.got == "refused"]
    other = [cell for cell in found if not cell.same and cell.got != "refused"]
    parts = [", ".join(map(_code, kinds))] if kinds else []
    parts += [f"refused: {', '.join(map(_code, refused))}"] if refused and kinds else ["refused"] if refused else []
    parts += [f"{_code(cell.said)} → {_code(cell.got)}" for cell in other]
    return "; ".join(parts)


def _code(text: str) -> str:
    plain = text.replace("|", "\\|").replace("\n", "↵").replace("\t", "⇥").replace("\0", "␀").replace("`", "'")
    return f"`{plain}`" if plain else "(empty)"
