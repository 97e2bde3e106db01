"""The runner: runs a pipeline on Spark.

    reader ──copy: Spark tasks──▶ commit log ──Spark jobs of each──▶ namespace ▶ functions ▶ writer
           ──sync: one receiver─▶

One run at a time holds the pipeline's lease.  A slow or stopped writer does not delay the others."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from tailrace.adaptors.contract import Changes, Reader
from tailrace.adaptors.registry import make_reader
from tailrace.coordination.failure import cause_of
from tailrace.coordination.lease import TTL_SECONDS, Lease
from tailrace.coordination.process import is_alive
from tailrace.errors import BadSetting, Broken, HomeError, StorageError, TailraceError
from tailrace.home import Home
from tailrace.pipeline.define.definition import Definition, SinkDefinition, unmatched
from tailrace.pipeline.define.drift import Difference, changes
from tailrace.pipeline.deliver.delivery import Branch
from tailrace.pipeline.deliver.offsets import is_untouched, load, offsets_key
from tailrace.pipeline.deliver.outlet import Outlet
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.copying import Copying
from tailrace.pipeline.ingest.following import SourceReceiver
from tailrace.pipeline.ingest.read_ahead import ReadAhead
from tailrace.pipeline.ingest.reader_state import namespaces_of
from tailrace.pipeline.operate.ledger import now, remember, remembered, report, sharing
from tailrace.pipeline.operate.operator import forget
from tailrace.pipeline.runtime.engine import Spark, SparkEngine
from tailrace.pipeline.runtime.open_topics import open_home
from tailrace.pipeline.runtime.reach import leave_marks
from tailrace.pipeline.runtime.status import SourceStatus, Status

_log = logging.getLogger("tailrace")
LEASE_WAIT = 1.5 * TTL_SECONDS
WAITING = "waiting for the last run to end"
UPKEEP_RATE = 32 * 1024 * 1024
"""The most bytes a second that upkeep writes in the background of a run."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before the runner retries a source or a home that is away."""


class Runner:
    """One run of a pipeline.  `run` blocks; `stop` may be called from another thread or a signal handler.

    `spark` is a running Spark, or a function that starts it, which is called after the checks of source and sinks."""

    def __init__(
        self,
        definition: Definition,
        spark: Spark | Callable[[], Spark],
        tell: Callable[[str], None] = _log.warning,
    ) -> None:
        definition = definition.placed()
        definition.check()
        self.definition, self._engine, self._tell = definition, SparkEngine(spark), tell
        self.status = Status(definition.name)
        self._stop = threading.Event()
        self._outlets: list[Outlet] = []

    def stop(self) -> None:
        """Tell the run to end cleanly, and return at once.  The run then commits what it has read, lets writers finish
        their batches, and stores the offsets."""
        self.status.state = "stopping"
        self._stop.set()

    def run(self, once: bool = False) -> None:
        """Copy, then follow until stopped; with `once` copy, catch up and end.  Blocks; raises the error that ended
        it."""
        self.definition.check_settings()
        home = open_home(self.definition.home)
        with ExitStack() as stack:
            self._lease = self._alone(home)
            stack.callback(self._lease.release)
            changed = self._compare(home)
            log = CommitLog(home, self.definition.name, partitions=self.definition.partitions)
            self._check_returned(log)
            self._refill(log, changed)
            log.hold(offsets_key(self.definition.name, sink.name, 0) for sink in self.definition.sinks)
            log.compact(self.definition.compact_by)
            reader = self._reader()
            stack.callback(self._close_source)
            stack.callback(self._close_writers)
            self._check(reader, log, known=remembered(home, self.definition.name) is not None)
            for change in changed:
                self._tell(f"changed since the last run: {change.text}")
            self._engine.start()
            self._begin(reader, log)
            remember(home, self.definition)
            self._engine.reach = leave_marks(self.definition, home)
            stack.enter_context(self._reporting(home))
            if self.definition.upkeep_seconds is not None:
                background = home.start_upkeep(self.definition.upkeep_seconds, UPKEEP_RATE)
                stack.callback(background.stop)
            for outlet, sink in zip(self._outlets, self.definition.sinks, strict=True):
                if outlet.begin():
                    self._fresh(log, outlet, sink)
            stack.callback(self._finish)
            self._work(log, once)

    def _alone(self, home: Home) -> Lease:
        """Acquire the pipeline's lease; `HomeError` while another run has it.

        The lease of a run that was killed on another machine must expire first: this waits for that, up to
        LEASE_WAIT."""
        lease = Lease(home.store, f"pipeline-{self.definition.name}")
        if not lease.acquire():
            holder = lease.holder()
            who = f"process {holder.get('pid')} on {holder.get('host')}"
            if not is_alive(holder):
                self.status.state = WAITING
                self._tell(f"waiting up to {LEASE_WAIT:.0f} s to see whether the run of {who} has ended …")
            if is_alive(holder) or not lease.acquire(wait=LEASE_WAIT):
                raise HomeError(
                    f"the pipeline {self.definition.name!r} is running already, in {who}; "
                    f"`tailrace status {self.definition.name}` says how it is"
                )
        self.status.state = "starting"
        return lease

    def _reader(self) -> Reader:
        self._source = self._watched = self._made()
        return self._source

    def _made(self) -> Reader:
        return make_reader(self.definition.source.adaptor, self.definition.source.checked())

    def _close_source(self) -> None:
        self._source.close()

    def _compare(self, home: Home) -> list[Difference]:
        """The changes of the definition since the last run; `BadSetting` if one would lose data."""
        before = remembered(home, self.definition.name)
        if before is None:
            return []
        known = namespaces_of(home.store, self.definition.name)
        found = changes(before, now(home, self.definition, before), known)
        if refused := [change.text for change in found if change.loses]:
            raise BadSetting(
                f"the pipeline {self.definition.name!r} has changed since it last ran; {'; '.join(refused)}"
            )
        return found

    def _check_returned(self, log: CommitLog) -> None:
        """Refuse a writer that earlier runs had and the last one had not, if upkeep has removed messages that the
        writer had not taken: deletes may be among them, and its sink would keep those rows for ever."""
        name, before = self.definition.name, remembered(log.home, self.definition.name)
        known = [sink.name for sink in self.definition.sinks] if before is None else before["sinks"]
        for sink in self.definition.sinks:
            if sink.name in known:
                continue
            _, marks = log.home.store.run(load(name, sink.name, log.topic.partitions))
            if not is_untouched(marks) and not log.has_all_since({q: mark.resume for q, mark in marks.items()}):
                raise BadSetting(
                    f"the writer {sink.name!r} was left out of {name!r} for a while, and upkeep has removed messages "
                    "since that it had not taken: its sink may have rows that were deleted meanwhile; empty the sink, "
                    "and give the writer another name: it is filled from the start"
                )

    def _refill(self, log: CommitLog, changed: Iterable[Difference]) -> None:
        """Restart writers from the beginning of the log if their namespace had matched nothing, as with a typo."""
        for change in changed:
            if change.refill and not log.complete:
                raise BadSetting(f"{change.text}; but the commit log no longer has everything: give it another name")
            if change.refill:
                forget(log.home, self.definition.name, change.refill, change.text)

    @contextmanager
    def _reporting(self, home: Home) -> Iterator[None]:
        """A block during which a thread stores the status every two seconds, for other processes; and once at its
        end."""
        done = threading.Event()

        def show() -> None:
            while True:
                for outlet in self._outlets:
                    outlet.look()
                with suppress(Exception):  # an adaptor's own error must not end this thread
                    self.status.health = self._watched.health()
                try:
                    report(home, self.definition.name, self.status.shown())
                except Broken:  # nothing can be stored any more; the last report raises it again
                    self._stop.set()
                    return
                except TailraceError:
                    pass
                if done.wait(2.0):
                    return

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

    def _check(self, reader: Reader, log: CommitLog, *, known: bool) -> None:
        """Check the source and the sinks, and raise what is wrong with them, before Spark is started.

        If the pipeline is `known`, it has run before, so an address is no typo: then this waits for a source that is
        away, and leaves it to the outlet to wait for a sink."""
        self._reachable(reader, known)
        if not log.begun:
            self._check_alone(reader, log.home)
            there = [namespace.name for namespace in reader.namespaces()]
            if told := unmatched("the source", self.definition.source.namespace, there):
                self._tell(f"{told}; what does, once it is there, is copied then")
            reader.check_namespaces(self._wanted(reader))
        known_names = list(log.phases) or self._wanted(reader)
        for sink in self.definition.sinks:
            if told := unmatched(f"the writer {sink.name!r}", sink.namespace, known_names):
                self._tell(told)
        for sink in self.definition.sinks:
            self._outlets.append(self._outlet(log, sink))
        for outlet in self._outlets:
            if (away := outlet.check(known)) is not None:
                self._tell(f"waiting for the sink of the writer {outlet.branch.name!r}: {away}")

    def _reachable(self, reader: Reader, known: bool) -> None:
        """Check the source; waits while it is away if the pipeline is `known`."""
        told = False
        while True:
            try:
                reader.check()
                break
            except StorageError as error:
                if cause_of(error) != "away" or not known or self._stop.is_set():
                    raise
                if not told:
                    self._tell(f"waiting for the source: {error}")
                told, self.status.state, self.status.error = True, "waiting", str(error)
                self._stop.wait(RETRY_PAUSE_SECONDS)
        self.status.state, self.status.error = "starting", ""

    def _check_alone(self, reader: Reader, home: Home) -> None:
        """Refuse a source that another pipeline of the home reads: each would consume changes that the other needs."""
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
        """Fix the position to follow from, before anything is copied, and tell it to the reader."""
        self.status.sources = {n: SourceStatus(p["phase"], p["count"]) for n, p in log.phases.items()}
        if not log.begun:
            log.begin(reader.begin(self._wanted(reader)))
        reader.begun(log.position)

    def _outlet(self, log: CommitLog, sink: SinkDefinition) -> Outlet:
        names = (self.definition.name, sink.name, self.definition.home, log.topic.name)
        policy = (sink.on_error, sink.redeliver)
        branch = Branch(*names, sink.adaptor, sink.checked(), sink.namespace, sink.functions, *policy)
        flush = self.definition.flush_seconds
        return Outlet(self._engine, log, branch, self.status, self._stop, flush=flush)

    def _fresh(self, log: CommitLog, outlet: Outlet, sink: SinkDefinition) -> None:
        """Begin a fresh copy for a writer that was added later with `fill="copy"`: it starts at the log's current ends.

        `BadSetting` if such a writer has `fill="log"` and the log no longer has everything."""
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
        once = once or not self._source.follows  # there is nothing to wait for
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
        """Copy the namespaces that are not copied, then follow the source until it is stopped or ends."""
        settings = (self._engine, self.definition, log, self.status, self._stop)
        copying = Copying(*settings)
        planned = copying.plan(reader)
        self._now("waiting for Spark")
        _ = self._engine.context  # starts Spark: without it the run cannot go on, even if all is copied
        self._now("copying")
        behind = [sink.name for sink in self.definition.sinks if log.starts(sink.name) is not None]
        with self._ahead(reader, log, needed=bool(planned or behind)):
            copying.run(reader, planned)
            for name in behind:
                fresh = Copying(*settings, name)
                fresh.run(reader, fresh.plan(reader))
        self._now("following")
        if reader.follows and not self._stop.is_set():
            copy = partial(self._copy_found, reader, copying)
            SourceReceiver(reader, log, self.status, self._stop, copy, self._made).run(once)
        if not self._stop.is_set() and (not reader.follows or (once and reader.finite)):
            self._complete(log)

    @contextmanager
    def _ahead(self, reader: Reader, log: CommitLog, *, needed: bool) -> Iterator[None]:
        """A block that copies.  If the source keeps its log only for some time, a thread stores its changes meanwhile,
        and they are appended behind the copy."""
        ahead = ReadAhead(log, self._made, self.status, self._watch)
        if not (reader.follows and reader.reads_ahead and (needed or ahead.begun)):
            yield
            return
        with ahead.reading():
            yield
        self._watch(reader)
        if not self._stop.is_set():
            ahead.take_over()

    def _watch(self, reader: Reader) -> None:
        self._watched = reader

    def _complete(self, log: CommitLog) -> None:
        """Set the phase of all namespaces to complete, in the commit log and in the status: the source has ended."""
        log.complete_phases(log.phases)
        for name, phase in log.phases.items():
            self.status.source(name).phase = phase["phase"]

    def _copy_found(self, reader: Reader, copying: Copying, found: Changes) -> None:
        """Copy the namespaces that have appeared or were altered while the source was followed."""
        planned = copying.plan(reader, found.appeared, found.altered)
        if again := [name for name in planned if name in found.altered]:
            self._tell(f"{', '.join(again)}: altered at the source in a way that no log tells; copied again")
        if planned:
            self._now("copying")
            copying.run(reader, planned)
            self._now("following")

    def _now(self, state: str) -> None:
        if not self._stop.is_set():
            self.status.state = state

    def _away(self, error: Exception, log: CommitLog) -> None:
        """Wait if the source or the home is away, and make a new reader at the stored position.  Raises any other
        error."""
        if cause_of(error) != "away" or not self._lease.held:
            raise error
        self._now("waiting")
        self.status.error = str(error)
        with suppress(Exception):
            self._close_source()
        self._stop.wait(RETRY_PAUSE_SECONDS)
        try:
            log.refresh()
            self._reader().begun(log.position)
        except StorageError:
            return

    def _catch_up(self, log: CommitLog) -> None:
        """Wait until every writer that works has delivered everything up to the log's current ends."""
        for outlet in self._outlets:
            outlet.hurry()
        ends = {q: end for q, (_, end) in log.topic.ends().items()}
        while not self._stop.is_set():
            working = [o.marks for o in self._outlets if o.working]
            if all(q in marks and marks[q].resume >= end for marks in working for q, end in ends.items()):
                return
            time.sleep(0.05)

    def _finish(self) -> None:
        """Stop, and wait up to `stop_seconds` for the writers to finish."""
        self._stop.set()
        deadline = time.monotonic() + self.definition.stop_seconds
        for outlet in self._outlets:
            with suppress(Exception):  # an outlet that has not started, or cannot store its offsets
                outlet.finish(max(0.0, deadline - time.monotonic()))

    def _close_writers(self) -> None:
        for outlet in self._outlets:
            with suppress(Exception):
                outlet.close()


def run(definition: Definition, spark: Spark, *, once: bool = False) -> Status:
    """Run a pipeline until it ends, and return its last status.  Logs what has changed since its last run."""
    runner = Runner(definition, spark)
    runner.run(once)
    return runner.status
