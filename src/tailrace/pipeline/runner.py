"""The runner: a pipeline at work on Spark.

    reader ──copy: Spark tasks──▶ commit log ──Spark jobs of each──▶ namespace ▶ functions ▶ writer
           ──sync: one receiver─▶

One run at a time holds the pipeline's lease.  A slow or stopped writer holds nobody back."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from tailrace.adaptors.contract import Reader
from tailrace.adaptors.registry import make_reader, writer_settings
from tailrace.coordination.lease import TTL, Lease
from tailrace.errors import BadSetting, HomeError, StorageError, TailraceError
from tailrace.home import Home
from tailrace.log.intake import open_reader
from tailrace.pipeline.changes import changes, described
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.copying import Copying
from tailrace.pipeline.definition import Definition, SinkDefinition, unmatched
from tailrace.pipeline.delivery import Branch
from tailrace.pipeline.engine import Engine, Spark
from tailrace.pipeline.following import Following
from tailrace.pipeline.ledger import remember, remembered, report, sharing
from tailrace.pipeline.outlet import Outlet
from tailrace.pipeline.places import open_home
from tailrace.pipeline.status import Source, Status
from tailrace.pipeline.trouble import cause_of

_log = logging.getLogger("tailrace")
LEASE_WAIT = 1.5 * TTL
UPKEEP_RATE = 32 * 1024 * 1024
"""Bytes a second that upkeep writes in the background of a run."""
PAUSE = 1.0
"""Seconds before something that is away is asked again."""


class Runner:
    """One run of a pipeline.  `run` blocks; `stop` may be called from another thread or a signal handler.

    `spark` is one that is there, or a function that starts it: called once both ends have been found to be in order."""

    def __init__(
        self,
        definition: Definition,
        spark: Spark | Callable[[], Spark],
        tell: Callable[[str], None] = _log.warning,
    ) -> None:
        definition.check()
        self.definition, self._engine, self._tell = definition, Engine(spark), tell
        self.status = Status(definition.name)
        self._stop = threading.Event()
        self._outlets: list[Outlet] = []

    def stop(self) -> None:
        """End cleanly: what is read is committed, writers finish their batch, offsets are stored."""
        self.status.state = "stopping"
        self._stop.set()

    def run(self, once: bool = False) -> None:
        """Copy, then follow until stopped; with `once` copy, catch up and end.  Raises what stopped it."""
        self.definition.check_settings()
        home = open_home(self.definition.home)
        with ExitStack() as stack:
            lease = Lease(home.store, f"pipeline-{self.definition.name}")
            self.status.state = "waiting for the last run to end"
            if not lease.acquire(wait=LEASE_WAIT):  # a run that was killed is gone only once its beat has stood still
                raise HomeError(
                    f"the pipeline {self.definition.name!r} is running already, in another process; "
                    f"`tailrace status {self.definition.name}` says how it is"
                )
            self.status.state = "starting"
            stack.callback(lease.release)
            self._lease = lease
            changed = self._compare(home)
            log = CommitLog(home, self.definition.name, partitions=self.definition.partitions)
            log.hold(sink.name for sink in self.definition.sinks)
            log.compact(self.definition.compact_by)
            reader = self._reader()
            stack.callback(self._close_source)
            self._check(reader, log)
            for change in changed:
                self._tell(f"changed since the last run: {change}")
            self._engine.start()
            self._begin(reader, log)
            remember(home, self.definition)
            stack.enter_context(self._reporting(home))
            if self.definition.upkeep_seconds is not None:
                background = home.start_upkeep(self.definition.upkeep_seconds, UPKEEP_RATE)
                stack.callback(background.stop)
            stack.callback(self._close)
            for outlet, sink in zip(self._outlets, self.definition.sinks, strict=True):
                outlet.begin()
                self._fresh(log, outlet, sink)
            self._work(log, once)

    def _reader(self) -> Reader:
        self._source = make_reader(self.definition.source.adaptor, self.definition.source.settings)
        return self._source

    def _close_source(self) -> None:
        self._source.close()

    def _compare(self, home: Home) -> list[str]:
        """What has changed since the last run; what would lose data is refused."""
        before = remembered(home, self.definition.name)
        if before is None:
            return []
        known = home.store.run(open_reader(self.definition.name, None)).get("phases", {})
        found = changes(before, described(self.definition), known)
        if refused := [change.text for change in found if change.loses]:
            raise BadSetting(
                f"the pipeline {self.definition.name!r} has changed since it last ran; {'; '.join(refused)}"
            )
        return [change.text for change in found]

    @contextmanager
    def _reporting(self, home: Home) -> Iterator[None]:
        """Show the status to other processes, every two seconds and at the end."""
        done = threading.Event()

        def show() -> None:
            while not done.wait(2.0):
                with suppress(TailraceError):
                    report(home, self.definition.name, self.status.shown())

        thread = threading.Thread(target=show, name="tailrace-status", daemon=True)
        thread.start()
        try:
            yield
        except BaseException as error:
            self.status.error = str(error)
            raise
        finally:
            done.set()
            thread.join()
            self.status.state = "stopped"
            report(home, self.definition.name, self.status.shown())

    def _check(self, reader: Reader, log: CommitLog) -> None:
        """Whatever can be known to be wrong with either end is said before Spark is started."""
        reader.check()
        if not log.begun:
            self._check_alone(reader, log.home)
            there = [namespace.name for namespace in reader.namespaces()]
            if told := unmatched("the source", self.definition.source.namespace, there):
                self._tell(f"{told}; what does, once it is there, is copied then")
            reader.check_namespaces(self._wanted(reader))
        self._outlets += [self._outlet(log, sink) for sink in self.definition.sinks]

    def _check_alone(self, reader: Reader, home: Home) -> None:
        """Refuse to begin with what another pipeline reads: each would take from the other what it has not read yet."""
        kept = reader.kept()
        other = sharing(home, self.definition, kept.settings) if kept is not None else None
        if kept is not None and other is not None:
            raise BadSetting(
                f"the pipeline {other!r} reads {kept.what} of the same source: what one has read is lost to the other; "
                f"give {self.definition.name!r} another {kept.settings[-1]}"
            )

    def _wanted(self, reader: Reader) -> list[str]:
        wanted = re.compile(self.definition.source.namespace)
        return [n.name for n in reader.namespaces() if wanted.search(n.name)]

    def _begin(self, reader: Reader, log: CommitLog) -> None:
        """Fix where following will start, before anything is copied."""
        self.status.sources = {n: Source(p["phase"], p["count"]) for n, p in log.phases.items()}
        if not log.begun:
            log.begin(reader.begin(self._wanted(reader)))
        reader.begun(log.position)

    def _outlet(self, log: CommitLog, sink: SinkDefinition) -> Outlet:
        names = (self.definition.name, sink.name, self.definition.home, log.topic.name)
        settings = writer_settings(sink.adaptor, sink.settings)
        branch = Branch(*names, sink.adaptor, settings, sink.namespace, sink.functions, sink.on_error)
        flush = self.definition.flush_seconds
        return Outlet(self._engine, log, branch, self.status, self._stop, flush=flush)

    def _fresh(self, log: CommitLog, outlet: Outlet, sink: SinkDefinition) -> None:
        """A writer that came later and wants a fresh copy starts where the log now ends."""
        if sink.fill == "log" and outlet.untouched and not log.complete:
            raise BadSetting(
                f"the writer {sink.name!r} of {self.definition.name!r} is new, and the commit log no longer has the "
                "last state of every document: retention or compaction by namespace has removed some; fill it with a "
                "fresh copy, fill='copy'"
            )
        if sink.fill == "copy" and outlet.untouched:
            if log.starts(sink.name) is None and any(end for _, end in log.topic.ends().values()):
                log.fill(sink.name)
            outlet.start_at(log.starts(sink.name) or {})

    def _work(self, log: CommitLog, once: bool) -> None:
        for outlet in self._outlets:
            outlet.start()
        while not self._stop.is_set():
            try:
                self._read(self._source, log, once)
                break
            except Exception as error:
                self._away(error, log)
        if once:
            self._catch_up(log)
        problems = [o.shown.error for o in self._outlets if o.shown.state == "stopped"]
        if problems:
            raise TailraceError("; ".join(problems))

    def _read(self, reader: Reader, log: CommitLog, once: bool) -> None:
        """Copy what is not copied, then follow."""
        settings = (self._engine, self.definition, log, self.status, self._stop)
        copying = Copying(*settings)
        planned = copying.plan(reader)
        self._now("waiting for Spark")
        _ = self._engine.context  # without which there is nothing to go on with, even if all is copied
        self._now("copying")
        copying.run(planned)
        for sink in self.definition.sinks:
            if log.starts(sink.name) is not None:
                fresh = Copying(*settings, sink.name)
                fresh.run(fresh.plan(reader))
        self._now("following")
        if reader.follows and not self._stop.is_set():
            copy = lambda found: copying.run(copying.plan(reader, found.appeared, found.altered))  # noqa: E731
            Following(reader, log, self.status, self._stop, copy).run(once)
        elif not once:
            self._stop.wait()

    def _now(self, state: str) -> None:
        if not self._stop.is_set():
            self.status.state = state

    def _away(self, error: Exception, log: CommitLog) -> None:
        """The source or the home cannot be reached: wait, and go on from what is stored.  Anything else is raised."""
        if cause_of(error) != "away" or not self._lease.held:
            raise error
        self._now("waiting")
        self.status.error = str(error)
        with suppress(Exception):
            self._close_source()
        self._stop.wait(PAUSE)
        try:
            log.refresh()
            self._reader().begun(log.position)
        except StorageError:
            return

    def _catch_up(self, log: CommitLog) -> None:
        """Wait until every writer that works has what the log has."""
        ends = {q: end for q, (_, end) in log.topic.ends().items()}
        while not self._stop.is_set():
            working = [o for o in self._outlets if o.working]
            if all(mark.resume >= ends[q] for o in working for q, mark in o.marks.items()):
                return
            time.sleep(0.05)

    def _close(self) -> None:
        """Let writers finish, for a while."""
        self._stop.set()
        deadline = time.monotonic() + self.definition.stop_seconds
        for outlet in self._outlets:
            with suppress(Exception):  # one that has not started, or can store nothing any more
                outlet.finish(max(0.0, deadline - time.monotonic()))


def run(definition: Definition, spark: Spark, *, once: bool = False) -> Status:
    """Run a pipeline to its end; gives its last status.  What changed since its last run is logged."""
    runner = Runner(definition, spark)
    runner.run(once)
    return runner.status
