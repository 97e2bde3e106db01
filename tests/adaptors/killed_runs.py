"""Runs of a pipeline that SIGKILL ends at chosen points, against real servers, while the source goes on changing.

Each life is a process with all of a run but Spark: its tasks are called in place, so a life takes a second and the
point at which it ends can be named: in the middle of the copy, of the hand-over from copying to following, of the write
that moves the position, of a sink's batch."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import tailrace
from tailrace.adaptors.registry import adaptor
from tailrace.log.record import Mode, Op
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.read_ahead import ReadAhead
from tailrace.pipeline.operate import operator
from tailrace.pipeline.operate.ledger import reported
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime import engine
from tailrace.storage.calls import Call, Store, Write

PATIENCE = 120.0
JOURNAL = "journal"
"""A table or collection to which every step adds the next number, and from which nothing goes."""
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.adaptors.killed_runs"])


@dataclass(frozen=True, slots=True)
class Death:
    """SIGKILL before, within or after the nth call of something; within: its bytes are stored, its write is not."""

    what: str
    when: Literal["before", "within", "after"] = "after"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.what}"


DEATHS = (
    Death("begin"), Death("plan"), Death("piece", "within"), Death("piece", "after", 2), Death("finish 0", "before"),
    Death("finish 1", "after"), Death("hand-over", "within"), Death("hand-over"), Death("position", "within"),
    Death("position", "after", 2), Death("finish 0"), Death("position", "within", 3), Death("finish 1", "before"),
)  # fmt: skip
"""The ends of the lives of one pipeline, one after the other."""
FEW = tuple(DEATHS[n] for n in (0, 2, 4, 6, 8, 9, 12))
"""One in the middle of each: the copy, the hand-over, the write of a position, a batch of either sink."""


class Trade(ABC):
    """A source that changes, what is made of it, and how both are compared."""

    definition: Definition

    @abstractmethod
    def step(self, number: int, rng: random.Random) -> None:
        """Change something, and add the number to the journal."""

    @abstractmethod
    def drift(self, death: str) -> None:
        """Change the form of something, before the life that ends so."""

    @abstractmethod
    def check(self) -> None:
        """Source and sinks are the same."""


@dataclass
class Load:
    """Steps, in a thread, until the block ends."""

    trade: Trade
    steps: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _failed: list[BaseException] = field(default_factory=list)

    @contextmanager
    def going(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        rng = random.Random(1)
        try:
            while not self._over.wait(0.02):
                self.trade.step(self.steps, rng)
                self.steps += 1
        except BaseException as error:
            self._failed.append(error)


def survive(trade: Trade, deaths: Sequence[Death]) -> None:
    """Live and die, then live to the end: nothing is lost, doubled or late."""
    load = Load(trade)
    with load.going():
        for death in deaths:
            trade.drift(str(death))
            assert live(trade.definition, death) == -signal.SIGKILL, f"it did not come to its end {death}"
    assert live(trade.definition, None) == 0, "the last run failed"
    trade.check()
    check_journal(trade.definition, load.steps)


def live(definition: Definition, death: Death | None) -> int | None:
    """One run in a process of its own; how it ended."""
    process = _processes.Process(target=_life, args=(definition, death, dict(os.environ)))
    process.start()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        with tailrace.open(definition.home) as home:
            raise AssertionError(f"a run that was to end {death} did not end: {reported(home, definition.name)}")
    return process.exitcode


def check_journal(definition: Definition, steps: int) -> None:
    """Every number that was added since the source is followed came once, and no row is older than the one before."""
    with tailrace.open(definition.home) as home:
        log = operator.messages(home, definition.name, dict.fromkeys(range(definition.partitions), 0), {})
        found = [m.message for m in log if m.message.op is not Op.COMMAND and JOURNAL in m.message.namespace]
    told = Counter(int(float(m.id.strip('"'))) for m in found if m.mode is Mode.SYNC)
    copied = {int(float(m.id.strip('"'))) for m in found if m.mode is Mode.COPY}
    assert told.keys() | copied == set(range(steps)), "numbers that are in the log, and that were added"
    assert set(told.values()) == {1}, "a change that came twice"
    assert told.keys() >= set(range(min(told), steps)), "a change that was not told"


# -- a life
def _life(definition: Definition, death: Death | None, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    if death is not None:
        _arm(definition, death)
    context = SimpleNamespace(defaultParallelism=1, setJobGroup=_ignored)
    spark: Any = SimpleNamespace(sparkContext=context)
    with patch.object(engine, "in_tasks", _in_place):
        Runner(definition, spark).run(once=death is None)


def _ignored(*given: Any, **named: Any) -> None:
    """What a run says to Spark of its jobs."""


def _in_place(spark: Any, function: Callable[..., Any], work: Sequence[tuple[Any, ...]], reach: Any) -> list[Any]:
    return [function(*some) for some in work]


def _arm(definition: Definition, death: Death) -> None:
    """Put the end where it belongs."""
    name, _, number = death.what.partition(" ")
    sink = int(number) if name == "finish" else 0
    owner, method = {
        "begin": (CommitLog, "begin"),
        "plan": (CommitLog, "plan_all"),
        "piece": (CommitLog, "commit_piece"),
        "hand-over": (CommitLog, "set_phases"),
        "position": (CommitLog, "take_in"),
        "take over": (ReadAhead, "_take"),
        "finish": (adaptor(definition.sinks[sink].adaptor).writer, "finish"),
    }["finish" if name == "finish" else death.what]
    doing = getattr(owner, method)
    calls, within = iter(range(1, 1_000_000)), threading.local()

    @functools.wraps(doing)
    def fatal(self: Any, *given: Any, **named: Any) -> Any:
        counts = death.what != "hand-over" or any(phase["phase"] == "sync" for phase in given[0].values())
        last = counts and next(calls) == death.nth
        if last and death.when == "before":
            _die()
        within.last = last and death.when == "within"
        found = doing(self, *given, **named)
        if last:
            _die()
        return found

    def answer(self: Store, call: Call) -> Any:
        if getattr(within, "last", False) and isinstance(call, Write):
            _die()
        return _answer(self, call)

    setattr(owner, method, fatal)
    Store.answer = answer  # type: ignore[method-assign]


_answer = Store.answer


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
