"""Lives of a run that ends at any point, without Spark: a source with a log that it forgets, a sink that keeps all.

A life has a fuse.  Every call to the home, to the source and to the sink is a point, and one that changes something is
two, before it and after it.  When the fuse is burned nothing gets out of that life any more, as after kill -9; what was
stored stays.  Tasks are called in place, and each writer delivers when the reader is done."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

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
from tailrace.errors import Fenced, TailraceError, Unavailable
from tailrace.home import Home, open_homes, store_of
from tailrace.log.record import Mode, Op
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition
from tailrace.pipeline.deliver import batch, delivery_jobs, outlet
from tailrace.pipeline.deliver.outlet import Outlet
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import operator
from tailrace.pipeline.operate.ledger import remember
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime import engine
from tailrace.storage.calls import Call, PutObject, Store, Write

TABLE, OTHER = "shop.orders", "shop.drafts"
IDS = 8
COMMANDS = 1
"""How often a change is a truncate, where six are updates."""
BATCH = 2
"""So many records of a partition are in one batch, at most."""
TASKS = 1
"""In so many tasks."""
_numbers = itertools.count()


class Died(TailraceError):
    """This life is over."""


class Wrong(AssertionError):
    """Something was lost, doubled or is out of order."""


class Fuse:
    """Burns after so many points; None: never."""

    def __init__(self, points: int | None = None) -> None:
        self._left, self._lock, self.points = points, threading.Lock(), 0

    @property
    def burned(self) -> bool:
        """Whether the life is over."""
        return self._left is not None and self.points > self._left

    def point(self) -> None:
        """Something is about to get out, or has."""
        with self._lock:
            self.points += 1
            if self.burned:
                raise Died("burned")


class FusedStore(Store):
    """A home's store, as one life has it."""

    fuse: Fuse

    def answer(self, call: Call) -> Any:
        self.fuse.point()
        found = Store.answer(self, call)
        if isinstance(call, (Write, PutObject)):
            self.fuse.point()
        return found


@dataclass
class Shop:
    """What lives on: the source with its log and how far it was told to forget it, and what the sink has."""

    rng: random.Random
    faults: random.Random
    left: int = 30
    """How many changes there will be."""
    rows: dict[int, str] = field(default_factory=lambda: dict.fromkeys(range(IDS), "first"))
    log: list[tuple[Op, int, str] | None] = field(default_factory=list)
    """None: a change of a table that nobody follows."""
    slot: int | None = None
    fuse: Fuse = field(default_factory=Fuse)
    epoch: int = 0
    offsets: Mapping[str, Any] | None = None
    sink: dict[int, str] = field(default_factory=dict)
    written: list[tuple[Op, str, str | None]] = field(default_factory=list)

    def trade(self) -> None:
        """Perhaps a change."""
        if self.left <= 0:
            return
        self.left -= 1
        id, v = self.rng.randrange(IDS), f"v{self.left}"
        match self.rng.choices(["update", "delete", "other", "truncate"], [6, 2, 2, COMMANDS])[0]:
            case "update":
                self.rows[id] = v
                self.log.append((Op.UPDATE, id, v))
            case "delete":
                self.rows.pop(id, None)
                self.log.append((Op.DELETE, id, v))
            case "truncate":
                self.rows.clear()
                self.log.append((Op.COMMAND, -1, v))
            case _:
                self.log.append(None)


_shops: dict[str, Shop] = {}


class ShopSettings(Settings):
    """Which shop."""

    name: str


class ShopReader(Reader):
    """Reads a shop, which goes on trading whenever it is looked at."""

    follows = True

    def __init__(self, settings: ShopSettings) -> None:
        self._shop = _shops[settings.name]

    def check(self) -> None:
        pass

    def _look(self) -> Shop:
        self._shop.fuse.point()
        self._shop.trade()
        return self._shop

    def namespaces(self) -> list[Namespace]:
        return [Namespace(TABLE)]

    def begin(self, namespaces: Sequence[str]) -> int:
        shop = self._look()
        if shop.slot is None:
            shop.slot = len(shop.log)
        return shop.slot

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        return [Piece(namespace, [first, first + rows]) for first in range(0, IDS, rows)]

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        shop, (first, end) = self._look(), piece.bounds
        found = [(id, v) for id, v in sorted(shop.rows.items()) if first <= id < end]
        for _ in range(4):
            shop.trade()
        if found:
            yield _rows(found, Op.INSERT, Mode.COPY)

    def follow(self, position: int, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """As a server does it, what it was told to forget is not there any more, whatever is asked for."""
        at = max(position, self._shop.slot or 0)
        while True:
            shop = self._look()
            some = shop.log[at : at + shop.rng.randrange(1, 4)]
            at += len(some)
            if not some:
                time.sleep(0.002)
            yield Changes([_rows([(id, v)], op, Mode.SYNC) for op, id, v in filter(None, some)], at)

    def acknowledge(self, position: int) -> None:
        self._shop.fuse.point()
        self._shop.slot = max(self._shop.slot or 0, position)


def _rows(found: Sequence[tuple[int, str]], op: Op, mode: Mode) -> pa.RecordBatch:
    if op is Op.COMMAND:
        return make_rows(TABLE, pa.record_batch({"command": pa.array(["truncate"])}), [], op=op, mode=mode)
    columns = {"id": pa.array([id for id, _ in found]), "v": pa.array([v for _, v in found])}
    return make_rows(TABLE, pa.record_batch(columns), ["id"], op=op, mode=mode)


class ShopWriter(Writer):
    """Keeps the offsets with the data.  Now and then a finish does nothing, or what it should, and gives no answer."""

    guarantee = "exactly once"
    commands = frozenset({"truncate"})

    def __init__(self, settings: ShopSettings) -> None:
        self._shop = _shops[settings.name]

    def check(self) -> None:
        pass

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        self._shop.fuse.point()
        self._shop.epoch = max(self._shop.epoch, who.epoch)
        return {"epoch": 0, "offsets": self._shop.offsets} if self._shop.offsets is not None else None

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        messages = [m for batch in rows for m in messages_of(batch)]
        self._shop.fuse.point()
        return Staged(len(messages), [(m.op, m.id, m.data.get("v")) for m in messages])

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        shop = self._shop
        shop.fuse.point()
        if who.epoch < shop.epoch:
            raise Fenced("another run has begun")
        if shop.faults.random() < 0.1:
            raise Unavailable("away")
        for op, id, v in (row for share in staged for row in share.detail):
            shop.written.append((op, id, v))
            if op is Op.DELETE:
                shop.sink.pop(int(id), None)
            else:
                shop.sink[int(id)] = v
        shop.offsets = offsets
        shop.fuse.point()
        if shop.faults.random() < 0.2:
            raise Unavailable("no answer")

    def command(self, namespace: str, command: Command, who: Who) -> None:
        self._shop.fuse.point()
        self._shop.sink.clear()


source = Adaptor("shop", "a shop", ShopReader, ShopSettings)
sink = Adaptor("shop", "a shop's sink", None, None, ShopWriter, ShopSettings)


class Story:
    """One shop through several lives."""

    def __init__(self, seed: int) -> None:
        self._name = f"shop{next(_numbers)}"
        self._shop = _shops[self._name] = Shop(random.Random(seed), random.Random(seed + 1000))
        self._kept = store_of("memory://")

    def close(self) -> None:
        """Forget it."""
        del _shops[self._name]

    def live(self, points: int | None) -> int:
        """One life; gives how many points it had."""
        fuse = self._shop.fuse = Fuse(points)
        store = FusedStore(self._kept.table, self._kept.objects, sleep=lambda seconds: None)
        store.fuse = fuse
        url = f"memory://{self._name}-{next(_numbers)}"
        try:
            open_homes._open[os.getpid(), url] = home = Home(url, store)
            self._run(home, url)
        except Exception:
            if not fuse.burned:
                raise
        finally:
            open_homes._open.pop((os.getpid(), url), None)
        return fuse.points

    def _run(self, home: Home, url: str) -> None:
        settings = {"name": self._name}
        made = Definition(
            "shop",
            url,
            SourceDefinition("tests.pipeline.interrupted_runs:source", settings),
            (SinkDefinition("c0", "tests.pipeline.interrupted_runs:sink", settings),),
            partitions=2,
            piece_rows=IDS // 2,
        )
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        runner = Runner(made, spark)
        log = CommitLog(home, "shop", partitions=2)
        runner._begin(runner._reader(), log)
        remember(home, made)
        out = runner._outlet(log, made.sinks[0])
        out.begin()
        _deliver(out)
        try:
            runner._read(runner._source, log, once=True)
        finally:
            runner._close_source()
        _deliver(out)

    def check(self) -> None:
        """Nothing lost, nothing doubled, nothing out of order."""
        home = Home("memory://", self._kept)
        told = [m.message for m in operator.messages(home, "shop", {0: 0, 1: 0}, {})]
        changed = [m for m in told if m.op is not Op.COMMAND]
        logged = Counter((m.op, m.id, m.data["v"]) for m in changed if m.mode is Mode.SYNC)
        happened = Counter((op, str(id), v) for op, id, v in filter(None, self._shop.log) if op is not Op.COMMAND)
        _same("changes in the commit log", logged & happened, logged)
        copies = Counter(m.id for m in changed if m.mode is Mode.COPY)
        _same("rows copied more than once", [id for id, count in copies.items() if count > 1], [])
        _same("messages in the sink", Counter(self._shop.written), Counter((m.op, m.id, m.data["v"]) for m in changed))
        _same("the sink's rows", self._shop.sink, self._shop.rows)


def _deliver(out: Outlet) -> None:
    """Until all of the log is in the sink, through faults."""
    for _ in range(50):
        out._grown.set()
        out._once()
        if not (out._doubtful or out._ranges()):
            return
    raise Wrong("the writer does not get to the end")


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{what}: {found}, not {wanted}")


def _in_place(spark: Any, function: Callable[..., Any], work: Sequence[tuple[Any, ...]], reach: Any) -> list[Any]:
    return [function(*some) for some in work]


class _Later:
    """What is done beside, done when it is asked for: after all that goes on meanwhile."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result = call


def _beside(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """By turns before and after what goes on meanwhile."""
    if next(_numbers) % 2:
        return _Later(lambda: function(*given))
    done = function(*given)
    return SimpleNamespace(result=lambda: done)


@contextlib.contextmanager
def without_spark() -> Iterator[None]:
    """Tasks are called in place, and nobody waits."""
    with (
        patch.object(engine, "in_tasks", _in_place),
        patch.object(outlet, "RETRY_PAUSE_SECONDS", 0.0),
        patch.object(delivery_jobs, "MAX_RECORDS_PER_TASK", 0),
        patch.object(batch, "MAX_RECORDS_PER_PARTITION", BATCH),
        patch.object(outlet, "beside", _beside),
        patch.object(engine, "MIN_PARALLEL_JOBS", TASKS),
    ):
        yield


def explore(seeds: Iterable[int], stride: int = 1) -> int:
    """Stories that die at every point once, and then again somewhere; gives how many.  `Wrong` if one ends badly."""
    count = 0
    with without_spark():
        for seed in seeds:
            for first in itertools.count(seed % stride, stride):
                story = Story(seed)
                try:
                    if story.live(first) <= first:
                        break
                    story.live(random.Random(first).randrange(1, 150))
                    story.live(None)
                    story.check()
                finally:
                    story.close()
                count += 1
    return count
