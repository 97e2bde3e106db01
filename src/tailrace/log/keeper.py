"""The keeper: runs upkeep over the topics of a home, one at a time by lease, no faster than it may.

$Lease-upkeep    who does it now
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailrace.coordination.lease import TTL, Lease, lease_key
from tailrace.errors import Busy, Closed, Fenced, TailraceError, UnknownTopic
from tailrace.log import catalog
from tailrace.log.append import Log
from tailrace.log.catalog import Described
from tailrace.log.holds import held
from tailrace.log.upkeep import Tended, tend
from tailrace.storage.calls import Store

LEASE = "upkeep"
HOUR = 3600.0
LOOK = 2.0
"""Seconds between two looks at the lease while it waits."""
_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast upkeep may write, and who is told of it."""

    rate: float | None = None
    """Bytes a second, at most; None: as fast as it can."""
    told: Callable[[str, int], None] = lambda topic, bytes: None
    """Called with a topic's name and how many more bytes were written; with none while it reads."""


class Keeper:
    """Runs upkeep in one home.  Any number may try; only the holder of the lease works.  Used by one thread."""

    def __init__(self, store: Store, pace: Pace | None = None, *, wall: Callable[[], float] = time.time) -> None:
        self._store, self._pace, self._wall = store, pace or Pace(), wall
        self._stopped = threading.Event()

    def run(self, topics: Iterable[str] = (), *, wait: float = 1.5 * TTL) -> list[Tended]:
        """Upkeep of these topics, or of all; `Busy` if another process is at it, and still is after `wait` seconds.

        Trouble with one topic is noted and does not keep the others from their turn."""
        with Lease(self._store, LEASE, wall=self._wall) as lease:
            if not lease.acquire(wait):
                raise Busy(f"upkeep of this home is under way already, {self._holder()}; wait for it, or stop it")
            names = list(dict.fromkeys(topics))
            named = bool(names)
            if not named:
                names = self._store.run(catalog.listing("$Topics"))
                self._store.run(catalog.purge())
            return [self._tend(lease, name, named) for name in names if not self._stopped.is_set()]

    def stop(self) -> None:
        """End after the topic, or the object, that is being worked on."""
        self._stopped.set()

    def _holder(self) -> str:
        item = self._store.table.get(lease_key(LEASE))
        shown = item["shown"] if item else {}
        return f"by process {shown.get('pid', '?')} on {shown.get('host', 'another machine')}"

    def _tend(self, lease: Lease, name: str, named: bool) -> Tended:
        began, done = self._store.clock(), Tended(name)
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
            self._store.run(tend(self._log(topic), topic.settings, done, int(self._wall() * 1000), needed, told))
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
        """Sleep, and end as soon as it is told to, or another has taken over."""
        while seconds > 0:
            self._stopped.wait(min(seconds, LOOK))
            self._check(lease)
            seconds -= LOOK

    def _check(self, lease: Lease) -> None:
        if self._stopped.is_set():
            raise _Stopped
        if not lease.held:
            raise Fenced("another process has taken over the upkeep of this home; this one ends")

    def _log(self, topic: Described) -> Log:
        return Log(topic.name, topic.id, self._store.table.inline_bytes, self._store.table.joins_inline)


class _Stopped(Exception):
    """Raised in the middle of a topic's upkeep, which can be cut off anywhere."""


class Background:
    """A thread that runs upkeep every so many seconds, until it is stopped.  What fails is logged, and tried again."""

    def __init__(self, keeper: Keeper, every: float = HOUR) -> None:
        self._keeper, self._every = keeper, every
        self._stop = threading.Event()
        self.last: list[Tended] = []
        """What the last upkeep did."""
        self._thread = threading.Thread(target=self._run, name="tailrace-upkeep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.last = self._keeper.run()
            except Busy:
                continue
            except Closed:
                return
            except Exception as error:
                _log.warning("upkeep failed and is tried again in %.0f s: %s", self._every, error)

    def stop(self) -> None:
        """No more upkeep; returns when what is under way has ended."""
        self._stop.set()
        self._keeper.stop()
        self._thread.join()
