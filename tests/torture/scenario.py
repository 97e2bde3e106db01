"""A scenario: the servers, the pipeline, the writers and the killer for some time, and then the comparison."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.adaptors.postgres.test_faults import Mortal
from tests.servers.process import folder
from tests.torture.actions import Book, inserting
from tests.torture.comparison import Difference, Places, compare
from tests.torture.killer import KINDS, STOPPED, Killer, Run
from tests.torture.known import left_out
from tests.torture.schema import BEFORE, Table, tables
from tests.torture.writer import TOGETHER, Done, Writer, about, owned

WRITERS = 3
FIRST = 240
"""Seconds that the first run may take to copy all; writers write meanwhile, and then the story's time begins."""
STILL = 300
"""Seconds without any progress after which the last run hangs; how long it takes is a matter of the machine."""
FILE = """
import tailrace

pipeline = (
    tailrace.pipeline("torture", home="{folder}/home", partitions=4, piece_rows=1000)
    .source("postgres", uri="${{SOURCE}}", namespace=r"^(?!ledger\\.)", slot="torture", identity="full", discover=1)
    .branch().save("postgres", uri="${{SINK}}", create=True, alter=True)
    .branch().save("file", path="{folder}/files")
    .branch().save("tailrace", home="{folder}/topics", partitions=2)
)
"""


class Bad(AssertionError):
    """A story that ended badly."""


class Scenario:
    """One seed: with all tables, or a few; `rest` is the time between two transactions of a writer."""

    def __init__(
        self, seed: int, place: Path, few: int | None = None, rest: float = 0.02, without: Sequence[str] = ()
    ) -> None:
        self._seed, self._folder, self._few, self._rest = seed, place, few, rest
        self._without = (*left_out(), *without)
        self._writers: list[Writer] = []
        self._killer: Killer | None = None

    def tell(
        self,
        seconds: float,
        kills: Sequence[str] = KINDS,
        most: int | None = None,
        pause: tuple[float, float] = (2, 25),
    ) -> str:
        """Live through it; `Bad` if something differs in the end.  Says what was done.  `most` kills, of these kinds,
        with pauses between them."""
        with contextlib.ExitStack() as stack:
            self._source, self._sink = _server(stack), _server(stack)
            places = self._prepared()
            run = Run(self._folder, {"SOURCE": places.source, "SINK": places.sink})
            stack.callback(run.kill)
            self._killer = Killer(self._seed, run, self._source, self._sink, kills, pause)
            self._live(run, seconds, most)
            self._last(run)
            differences = compare(places)
        if differences:
            raise Bad(self._report("the sinks are not what the source is", differences))
        return self._summary()

    def _prepared(self) -> Places:
        """Databases, tables with rows, the pipeline's file."""
        source, sink = self._source.server, self._sink.server
        assert source is not None
        assert sink is not None
        for server, name in ((source, "source"), (sink, "sink")):
            with psycopg.connect(server.uri(), autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        mine = owned(self._chosen(), WRITERS)
        for number, some in enumerate(mine):
            self._writers.append(Writer(source.uri("source"), self._seed, number, some, self._rest, self._without))
        with psycopg.connect(source.uri("source"), autocommit=True) as connection:
            connection.execute(BEFORE)
            for table in (table for some in mine for table in some):
                self._fill(connection, table)
        (self._folder / "torture.py").write_text(FILE.format(folder=self._folder))
        return Places(source.uri("source"), sink.uri("sink"), self._folder / "files", self._folder / "topics")

    def _chosen(self) -> list[Table]:
        """All tables, or some by the seed, with those that they depend on."""
        made = tables(self._without)
        if self._few is None or self._few >= len(made):
            return made
        names = {table.name for table in random.Random(f"{self._seed} tables").sample(made, self._few)}
        wanted = names.union(*(group for group in TOGETHER if names & set(group)))
        return [table for table in made if table.name in wanted]

    def _fill(self, connection: psycopg.Connection[Any], table: Table) -> None:
        connection.execute(table.create.encode())
        book = Book(random.Random(f"{self._seed} {table.namespace}"), [], first=0)
        for _ in range(0, table.rows, 20):
            for statement in inserting(book, table, min(20, table.rows)):
                connection.execute(statement.encode())

    def _live(self, run: Run, seconds: float, most: int | None) -> None:
        """Writers write, the killer kills, the run is watched."""
        assert self._killer is not None
        run.start()
        for writer in self._writers:
            writer.start()
        try:
            self._watch(run, FIRST, lambda: run.is_at_work("following"))
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self._watch(run, min(self._killer.pause(), end - time.monotonic()))
                if time.monotonic() < end and (most is None or len(self._killer.history) < most):
                    self._killer.strike()
                    if self._killer.is_patient():
                        self._watch(run, FIRST, lambda: run.is_at_work("following", "copying"))
        finally:
            for writer in self._writers:
                writer.stop()
        for writer in self._writers:
            writer.join()

    def _watch(self, run: Run, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """See that the run goes on, for some time or until something has come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self._see(run)
            time.sleep(0.1)

    def _see(self, run: Run) -> None:
        assert run.process is not None
        code = run.process.poll()
        if code is not None:
            raise Bad(self._report(f"the run ended by itself with {code}", said=run.said))
        for name, sink in run.status.get("sinks", {}).items():
            if sink["state"] in ("stopped", "failed"):
                raise Bad(self._report(f"the writer {name!r} has stopped: {sink['error']}", said=run.said))

    def _last(self, run: Run) -> None:
        """The run is ended, and one more takes all that is left."""
        assert run.process is not None
        if (code := run.stop()) not in STOPPED:
            raise Bad(self._report(f"a run that was asked to stop ended with {code}", said=run.said))
        if (code := self._end_of(run, run.start("--once"))) != 0:
            raise Bad(self._report(f"the last run ended with {code}", said=run.said))

    def _end_of(self, run: Run, process: subprocess.Popen[bytes]) -> int:
        """How a run ended that goes on as long as it makes progress."""
        seen, since = "", time.monotonic()
        while (code := process.poll()) is None:
            if (now := run.progress) != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > STILL:
                raise Bad(self._report(f"the last run has stood still for {STILL} s, at {seen}", said=run.said))
            time.sleep(1)
        return code

    # -- what is said
    @property
    def history(self) -> list[Done]:
        """All that the writers did, in order."""
        return sorted((done for writer in self._writers for done in writer.history), key=lambda done: done.at)

    def _summary(self) -> str:
        done = self.history
        refused = sum(one.outcome.startswith("refused") for one in done)
        kills = len(self._killer.history) if self._killer else 0
        return f"seed {self._seed}: {len(done)} transactions, {refused} of them refused, {kills} kills: equal"

    def _report(self, what: str, differences: Sequence[Difference] = (), said: str = "") -> str:
        history = self.history
        out = [
            f"seed {self._seed}: {what}",
            *(f"killed: {one}" for one in (self._killer.history if self._killer else ())),
        ]
        for namespace in dict.fromkeys(one.namespace for one in differences):
            out += [str(one) for one in differences if one.namespace == namespace]
            out += ["  its last transactions:", *(f"  {done}" for done in about(history, namespace))]
        if said:
            out += ["the last transactions:", *map(str, history[-5:]), "what the run said:", said[-3000:]]
        return "\n".join(out)


def _server(stack: contextlib.ExitStack) -> Mortal:
    """A server whose data its own user may read."""
    made = Mortal(stack.enter_context(folder(None)))
    stack.callback(made.close)
    made.start()
    return made


def actions(history: Sequence[Done]) -> Iterator[tuple[str, str]]:
    """What was done, and what became of it."""
    return ((done.plan.name, done.outcome) for done in history)
