"""Scheduler: runs upkeep over the topics of a home, one at a time, in one process at a time, no faster than its rate.

$Lease-upkeep    the process that runs it now
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailrace.coordination.lease import TTL_SECONDS, Lease, lease_key
from tailrace.errors import Busy, Closed, Fenced, TailraceError, UnknownTopic
from tailrace.log import catalog
from tailrace.log.catalog import Described
from tailrace.log.groups import group as groups
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import retention_clock
from tailrace.log.upkeep.retention_holds import held
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend
from tailrace.storage.calls import Store

LEASE = "upkeep"
HOUR_SECONDS = 3600.0
LEASE_CHECK_SECONDS = 2.0
"""Seconds between two looks at the lease while upkeep waits."""
_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class UpkeepPace:
    """How fast upkeep may write, and the function that it reports to."""

    rate: float | None = None
    """The most bytes a second; None: as fast as possible."""
    told: Callable[[str, int], None] = lambda topic, bytes: None
    """Called with a topic's name and the number of bytes written since the last call; with 0 while upkeep reads."""


class HomeUpkeep:
    """Runs upkeep in one home. Several processes may try; only the holder of the lease works. One thread uses it."""

    def __init__(
        self,
        store: Store,
        pace: UpkeepPace | None = None,
        *,
        also: Callable[[Described], object] = lambda topic: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._pace, self._also, self._wall = store, pace or UpkeepPace(), also, wall
        """`also` does what is to be done for a topic by those who keep more than records in it, such as a queue."""
        self._stopped = threading.Event()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy."""
        return self._store.forked

    def run(self, topics: Iterable[str] = (), *, wait: float = 1.5 * TTL_SECONDS) -> list[UpkeepResult]:
        """Upkeep of these topics, or of all; `Busy` if another process is still running it after `wait` seconds.  An
        error with one topic is noted, and upkeep goes on with the next."""
        with Lease(self._store, LEASE, wall=self._wall) as lease:
            if not lease.acquire(wait):
                raise Busy(f"upkeep of this home is under way already, {self._holder()}; wait for it, or stop it")
            names = list(dict.fromkeys(topics))
            named = bool(names)
            if not named:
                names = self._store.run(catalog.listing("$Topics"))
                self._store.run(groups.purge())
            return [self._tend(lease, name, named) for name in names if not self._stopped.is_set()]

    def stop(self) -> None:
        """Stop after the topic or object in progress."""
        self._stopped.set()

    def _holder(self) -> str:
        item = self._store.table.get(lease_key(LEASE))
        shown = item["shown"] if item else {}
        return f"by process {shown.get('pid', '?')} on {shown.get('host', 'another machine')}"

    def _tend(self, lease: Lease, name: str, named: bool) -> UpkeepResult:
        began, done = self._store.clock(), UpkeepResult(name)
        written = 0

        def told(bytes: int) -> None:
            nonlocal written
            written += bytes
            self._pace.told(name, bytes)
            self._check(lease)
            if self._pace.rate:
                self._wait(lease, began + written / self._pace.rate - self._store.clock())

        try:
            self._check(lease)
            topic = self._store.run(catalog.describe(name))
            needed = self._store.run(held(topic.id, range(topic.partitions)))
            log, wall = self._log(topic), int(self._wall() * 1000)
            now = wall
            if topic.settings.retention_ms is not None or topic.settings.compact:
                now = self._store.run(retention_clock.time_of(log, topic, wall))
                done.clock_ahead_ms = wall - now
            self._store.run(tend(log, topic.settings, done, now, needed, told))
            self._also(topic)
        except UnknownTopic:  # deleted meanwhile
            if named:
                raise
        except _Stopped:
            done.error = "stopped before it was finished"
        except (Closed, Fenced):
            raise
        except TailraceError as error:
            done.error = str(error)
        done.seconds = self._store.clock() - began
        return done

    def _wait(self, lease: Lease, seconds: float) -> None:
        """Sleep; wake early when upkeep is stopped or another process has taken over."""
        while seconds > 0:
            self._stopped.wait(min(seconds, LEASE_CHECK_SECONDS))
            self._check(lease)
            seconds -= LEASE_CHECK_SECONDS

    def _check(self, lease: Lease) -> None:
        if self._stopped.is_set():
            raise _Stopped
        if not lease.held:
            raise Fenced("another process has taken over the upkeep of this home; this one ends")

    def _log(self, topic: Described) -> TopicLog:
        return TopicLog(topic.name, topic.id, self._store.table.inline_bytes, self._store.table.joins_inline)


class _Stopped(Exception):
    """Ends a topic's upkeep, which can be cut off anywhere."""


class BackgroundUpkeep:
    """A thread that runs upkeep every `every` seconds, until it is stopped.  It logs errors, and tries again."""

    def __init__(self, upkeep: HomeUpkeep, every: float = HOUR_SECONDS) -> None:
        self._upkeep, self._every = upkeep, every
        self._stop = threading.Event()
        self._told: dict[str, str] = {}
        """The error of each topic that was logged last; each is logged once, until another one or none comes."""
        self.last: list[UpkeepResult] = []
        """What the last upkeep did."""
        self._thread = threading.Thread(target=self._run, name="tailrace-upkeep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.last = self._upkeep.run()
            except Busy:
                continue
            except Closed:
                return
            except Exception as error:
                _log.warning("upkeep failed and is tried again in %.0f s: %s", self._every, error)
            else:
                self._tell({one.topic: one.error for one in self.last if one.error is not None})

    def _tell(self, errors: dict[str, str]) -> None:
        for topic, error in errors.items() if not self._stop.is_set() else ():
            if self._told.get(topic) != error:
                _log.warning("upkeep of %r failed and is tried again in %.0f s: %s", topic, self._every, error)
        self._told = errors

    def stop(self) -> None:
        """Stop upkeep; returns when the topic in progress is done.  In a forked child this does nothing: the parent's
        thread goes on."""
        if self._upkeep.forked:
            return
        self._stop.set()
        self._upkeep.stop()
        self._thread.join()
