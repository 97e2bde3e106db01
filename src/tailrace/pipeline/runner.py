"""The runner: a pipeline at work on Spark.

    reader ──copy: Spark tasks──▶ commit log ──Spark jobs of each──▶ namespace ▶ functions ▶ writer
           ──sync: one receiver─▶

One run at a time holds the pipeline's lease.  A slow or stopped writer holds nobody back."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from pyspark.sql import SparkSession

from tailrace.adaptors.contract import Reader
from tailrace.adaptors.registry import make_reader
from tailrace.coordination.lease import TTL, Lease
from tailrace.errors import HomeError, TailraceError
from tailrace.home import Home
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.copying import Copying
from tailrace.pipeline.definition import Definition, SinkDefinition
from tailrace.pipeline.delivery import Branch
from tailrace.pipeline.following import Following
from tailrace.pipeline.ledger import remember, report
from tailrace.pipeline.outlet import Outlet
from tailrace.pipeline.places import open_home
from tailrace.pipeline.status import Source, Status

LEASE_WAIT = 1.5 * TTL


class Runner:
    """One run of a pipeline.  `run` blocks; `stop` may be called from another thread or a signal handler."""

    def __init__(self, definition: Definition, spark: SparkSession) -> None:
        definition.check()
        self.definition, self._spark = definition, spark
        self.status = Status(definition.name)
        self._stop = threading.Event()
        self._outlets: list[Outlet] = []
        self._parallel = max(2, spark.sparkContext.defaultParallelism)

    def stop(self) -> None:
        """End cleanly: what is read is committed, writers finish their batch, offsets are stored."""
        self.status.state = "stopping"
        self._stop.set()

    def run(self, once: bool = False) -> None:
        """Copy, then follow until stopped; with `once` copy, catch up and end.  Raises what stopped it."""
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
            log = CommitLog(home, self.definition.name, partitions=self.definition.partitions)
            reader = make_reader(self.definition.source.adaptor, self.definition.source.settings)
            stack.callback(reader.close)
            reader.check()
            self._begin(reader, log)
            remember(home, self.definition)
            stack.enter_context(self._reporting(home))
            self._outlets = [self._outlet(log, sink) for sink in self.definition.sinks]
            stack.callback(self._close)
            self._work(reader, log, once)

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

    def _begin(self, reader: Reader, log: CommitLog) -> None:
        """Fix where following will start, before anything is copied."""
        self.status.sources = {n: Source(p["phase"], p["count"]) for n, p in log.phases.items()}
        if not log.begun:
            wanted = re.compile(self.definition.source.namespace)
            names = [n.name for n in reader.namespaces() if wanted.search(n.name)]
            log.begin(reader.begin(names))
        reader.begun(log.position)

    def _outlet(self, log: CommitLog, sink: SinkDefinition) -> Outlet:
        names = (self.definition.name, sink.name, self.definition.home, log.topic.name)
        branch = Branch(*names, sink.adaptor, dict(sink.settings), sink.namespace, sink.functions, sink.on_error)
        flush = self.definition.flush_seconds
        return Outlet(self._spark, log, branch, self.status, self._stop, parallel=self._parallel, flush=flush)

    def _work(self, reader: Reader, log: CommitLog, once: bool) -> None:
        for outlet in self._outlets:
            outlet.start()
        self.status.state = "copying"
        context = self._spark.sparkContext
        copying = Copying(context, self.definition, log, self.status, self._stop, self._parallel)
        copying.run(copying.plan(reader))
        self.status.state = "following"
        if reader.follows and not self._stop.is_set():
            follow = lambda names: copying.run(copying.plan(reader, names))  # noqa: E731
            Following(reader, log, self.status, self._stop, follow).run(once)
        elif not once:
            self._stop.wait()
        if once:
            self._catch_up(log)
        problems = [o.shown.error for o in self._outlets if o.shown.state == "stopped"]
        if problems:
            raise TailraceError("; ".join(problems))

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
            with suppress(Exception):
                outlet.finish(max(0.0, deadline - time.monotonic()))


def run(definition: Definition, spark: SparkSession, *, once: bool = False) -> Status:
    """Run a pipeline to its end; gives its last status."""
    runner = Runner(definition, spark)
    runner.run(once)
    return runner.status
