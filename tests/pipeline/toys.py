"""Toy ends of a pipeline: a source that makes its rows up, and a sink that writes down what it is given."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace import errors
from tailrace.adaptors.contract import (
    Adaptor,
    Changes,
    Command,
    Namespace,
    Piece,
    Reader,
    Settings,
    Staged,
    Who,
    Writer,
)
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.errors import Fenced, Unavailable
from tailrace.log.record import Mode, Op


class SourceSettings(Settings):
    """`rows` rows, `width` bytes wider, in each of `tables`; then `changes` updates of the first, `truncate` after
    so many.  A copy of a piece takes `slow` seconds longer.  While the file `down` is there, nobody answers."""

    tables: tuple[str, ...] = ("shop.orders", "shop.items")
    rows: int = 0
    width: int = 0
    slow: float = 0
    changes: int = 0
    truncate: int = -1
    down: str = ""


class ToySource(Reader):
    follows = True

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def check(self) -> None:
        if self._settings.down and Path(self._settings.down).exists():
            raise Unavailable("the toy shop is closed")

    def namespaces(self) -> list[Namespace]:
        return [Namespace(name, self._settings.rows) for name in self._settings.tables]

    def begin(self, namespaces: Sequence[str]) -> int:
        return 0

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        count = self._settings.rows
        return [Piece(namespace, [a, min(a + rows, count)]) for a in range(0, count, rows)]

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        a, b = piece.bounds
        time.sleep(self._settings.slow)
        step = max(1, 16_000_000 // self._settings.width) if self._settings.width else b - a
        for first in range(a, b, step or 1):
            count = min(step, b - first)
            columns = {"id": pa.array(range(first, first + count)), "v": pa.array(["copied"] * count)}
            if self._settings.width:
                columns["wide"] = pa.array([random.randbytes(self._settings.width) for _ in range(count)])
            yield make_rows(piece.namespace, pa.record_batch(columns), ["id"], timestamp=1000)

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        while True:
            if position < self._settings.changes:
                position += 1
                yield Changes([self._change(position)], position, int(time.time() * 1000))
            else:
                time.sleep(0.05)
                yield Changes([], position)

    def _change(self, position: int) -> pa.RecordBatch:
        name = self._settings.tables[0]
        if position == self._settings.truncate:
            columns = pa.record_batch({"command": pa.array(["truncate"])})
            return make_rows(name, columns, [], op=Op.COMMAND, mode=Mode.SYNC, timestamp=position)
        columns = pa.record_batch({"id": pa.array([position]), "v": pa.array([f"change {position}"])})
        return make_rows(name, columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC, timestamp=position)


class SinkSettings(Settings):
    """Where to write, and what to fail at: staging several rows (`bulk`), rows with this id (`bad`), every nth finish
    of several rows (`every`), or everything while the file `away` is there, and with `gone` also a beginning anew.
    While `slow` is there a finish does not end.  The files `before` and `after` make one finish fail, before or after
    it has happened, with the error they name."""

    path: str
    bulk: bool = False
    bad: int = -1
    every: int = 0
    exact: bool = False
    silent: bool = False


class ToySink(Writer):
    """Each finished batch is one file; with `exact` the offsets are in it, so that a batch is there once;
    with `silent` nothing is kept."""

    guarantee = "at least once"
    commands = frozenset({"truncate"})
    calls = 0

    def __init__(self, settings: SinkSettings) -> None:
        self._settings, self._path = settings, Path(settings.path)

    def check(self) -> None:
        if (self._path / "gone").exists():
            raise Unavailable("the toy is away")
        self._path.mkdir(parents=True, exist_ok=True)

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        kept = [found for p in delivered_files(self._path) if (found := json.loads(p.read_text())["offsets"])]
        return {"epoch": 0, "offsets": kept[-1]} if self._settings.exact and kept else None

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        if (self._path / "gone").exists():
            raise Unavailable("the toy is away")
        (self._path / "epoch").write_text(str(who.epoch))
        return self.restore(who.pipeline, who.writer)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        if (self._path / "away").exists() or (self._path / "gone").exists():
            raise Unavailable("the toy is away")
        messages = [m for batch in rows for m in messages_of(batch)]
        (self._path / f"{time.time_ns()}.staged").touch()
        if self._settings.bulk and len(messages) > 1:
            raise ValueError("bulk refused")
        for m in messages:
            if m.data.get("id") == self._settings.bad:
                raise ValueError(f"cannot hold id {m.id}")
        if self._settings.silent:
            return Staged(len(messages), [])
        return Staged(len(messages), [[m.namespace, m.id, m.op.name, m.data.get("v")] for m in messages])

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        if who.epoch < int((self._path / "epoch").read_text()):
            raise Fenced("another run has begun")
        while (self._path / "slow").exists():
            time.sleep(0.1)
        self._fault("before")
        rows = [row for s in staged for row in s.detail]
        ToySink.calls += len(rows) > 1
        if self._settings.every and len(rows) > 1 and ToySink.calls % self._settings.every == 0:
            raise ValueError("one of many refused")
        if not self._settings.silent:
            self._keep({"rows": rows, "offsets": offsets})
        self._fault("after")

    def _fault(self, when: str) -> None:
        if (self._path / when).exists():
            error = (self._path / when).read_text()
            (self._path / when).unlink()
            raise getattr(errors, error, ValueError)("made to fail")

    def command(self, namespace: str, command: Command, who: Who) -> None:
        self._keep({"rows": [[namespace, "", command.name, None]], "offsets": {}})

    def _keep(self, batch: Mapping[str, Any]) -> None:
        temporary = self._path / f".{os.getpid()}"
        temporary.write_text(json.dumps(batch))
        temporary.rename(self._path / f"{time.time_ns():020d}.json")


def delivered_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json"))


def batches(path: Path) -> list[list[list[Any]]]:
    """The rows of each finished batch, in order."""
    return [json.loads(p.read_text())["rows"] for p in delivered_files(path)]


def rows(path: Path) -> list[list[Any]]:
    """All rows, in the order they came."""
    return [row for batch in batches(path) for row in batch]


source = Adaptor("toy", "rows made up", ToySource, SourceSettings)
sink = Adaptor("toy", "rows written down", None, None, ToySink, SinkSettings)
