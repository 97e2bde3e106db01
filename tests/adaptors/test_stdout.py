"""The stdout adaptor."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Command, Who
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.adaptors.stdout import StdoutSink, StdoutWriter
from tailrace.log.record import Op

ROWS = make_rows(
    "public.orders",
    pa.record_batch({"id": [1, 2], "total": [Decimal("1.50"), None], "raw": [b"\xff", None]}),
    ["id"],
    op=Op.UPDATE,
    timestamp=5,
)


def test_each_message_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    writer = StdoutWriter(StdoutSink())
    writer.check()
    staged = writer.stage([ROWS])
    assert capsys.readouterr().out == ""
    writer.finish([staged], Who("p", "w", 1), {})
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {
        "op": "update", "namespace": "public.orders", "id": "1", "timestamp": 5,
        "data": {"id": 1, "total": "1.50", "raw": "/w=="},
    }  # fmt: skip
    assert json.loads(second)["data"] == {"id": 2, "total": None, "raw": None}
    assert (staged.rows, staged.namespaces) == (2, {"public.orders": 2})


def test_pretty_is_for_reading(capsys: pytest.CaptureFixture[str]) -> None:
    writer = StdoutWriter(StdoutSink(format="pretty"))
    writer.finish([writer.stage([ROWS])], Who("p", "w", 1), {})
    out = capsys.readouterr().out
    assert out.startswith('{\n  "op": "update",\n')
    assert out.count("\n}\n") == 2


def test_commands_are_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    StdoutWriter(StdoutSink()).command('a"b', Command("truncate"), Who("p", "w", 1))
    assert json.loads(capsys.readouterr().out) == {"op": "command", "namespace": 'a"b', "command": "truncate"}


def test_each_message_says_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    writer = StdoutWriter(StdoutSink())
    writer.finish([writer.stage([placed(ROWS, 3, pa.array([40, 41]))])], Who("p", "w", 1), {})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["partition"], line["offset"], "transaction" in line) for line in lines] == [
        (3, 40, False),
        (3, 41, False),
    ]
