"""Consumers: threads that work on a member's units until someone stops them (see `sharing` for the work itself).

    with engine.consumer(User, group="mailer", handler=send) as consumer:
        ...                                   # works in the background until the block ends
    consumer.run(max_seconds=300)             # or in the foreground

One thread looks for units and shares them, some handle records, one sends beats.  A failure that must stop the consumer
ends `run`, after everything that was handled is committed and the units are given back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from tailrace.coordination import lease
from tailrace.coordination.handler_settings import HandlerSettings
from tailrace.coordination.lease import BeatThread, new_number
from tailrace.coordination.sharing import Policy, UnitWorker
from tailrace.coordination.source import UnitSource
from tailrace.coordination.task import Task
from tailrace.coordination.watch import MIN_POLL_SECONDS, VERSION_CHECK_SECONDS, watch
from tailrace.errors import BadInput, Closed, HandlerStuck, StorageError
from tailrace.storage import forks
from tailrace.storage.calls import Steps, Store

R = TypeVar("R")

MAX_IDLE_SECONDS = 1.0
"""The most seconds before a unit without new records is read again."""
FIND_SECONDS = 5.0
"""Seconds between two looks for new units while there is no sign of any."""
CLOSE_GRACE_SECONDS = 30.0
"""Seconds that closing waits for handlers that are running."""

log = logging.getLogger("tailrace")


class UnitsRan(NamedTuple):
    """The result of a consumer's run. `caught_up` is False if time ran out first."""

    records: int
    caught_up: bool
    seconds: float


class UnitConsumer(Generic[R]):
    """A member of a group that shares units.  `engine.consumer` and `feed.consumer` make one; it works once."""

    def __init__(
        self,
        store: Store,
        source: UnitSource[R],
        join: Callable[[], Steps[Any]],
        handler: Callable[[Any], Any],
        settings: HandlerSettings,
        *,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        if not callable(handler):
            raise BadInput(f"a handler is a function that takes a record, not {handler!r}")
        self._store, self._join, self._handler, self._settings = store, join, handler, settings
        self._catch_up = catch_up
        """Waits until everything written so far can be read."""
        policy = Policy(
            on_error=settings.on_error, attempts=settings.attempts, commit_interval=settings.commit_interval
        )
        self._worker = UnitWorker(source, new_number(), self._call, policy, ttl=settings.ttl, name=settings.member)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_async = inspect.iscoroutinefunction(handler)
        self._changed = threading.Condition()
        self._busy: dict[Task[R], threading.Thread] = {}
        self._hanging: set[threading.Thread] = set()
        """Threads whose handlers hang; their records were passed over, and other threads do their work."""
        self._awaited: dict[threading.Thread, Future[Any]] = {}
        """The running calls of `async def` handlers, by the thread that waits for each."""
        self._due, self._ended, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._ending, self._threads = threading.Lock(), list[threading.Thread]()
        self._looks = 0
        self._since = 0.0
        """The consumer has caught up once it has read everything written before this time, on the monotonic clock."""
        self._beating: BeatThread | None = None
        self.failure: Exception | None = None
        """The error that stopped the consumer; None while it works."""
        forks.watch(self)

    def left_behind(self) -> None:
        """Stops all work: this is a forked child's copy, and the units belong to the parent."""
        self._closing.set()
        self._worker.closing = True

    # -- for its user
    def run(self, max_seconds: float | None = None, *, until_caught_up: bool = False) -> UnitsRan:
        """Work until the consumer is closed, the time is up or (`until_caught_up`) all present records are handled.
        Raises the error that stopped it: `HandlerFailed`, `HandlerStuck`, `PositionLost`…"""
        began = time.monotonic()
        self.start()
        try:
            if until_caught_up:
                self._catch_up()
                self._since = self._store.clock()
            while not self._is_over(began, max_seconds, until_caught_up):
                self._ended.wait(0.02 if until_caught_up else 0.1)
        finally:
            caught_up = self.caught_up
            self.close()
        return self._ran(began, caught_up)

    async def arun(self, max_seconds: float | None = None, *, until_caught_up: bool = False) -> UnitsRan:
        """`run` for asyncio: the handler may be an `async def`, which then runs in this loop."""
        self._loop = asyncio.get_running_loop()
        began = time.monotonic()
        await asyncio.to_thread(self.start)
        try:
            if until_caught_up:
                await asyncio.to_thread(self._catch_up)
                self._since = self._store.clock()
            while not self._is_over(began, max_seconds, until_caught_up):
                await asyncio.sleep(0.02)
        finally:
            caught_up = self.caught_up
            await asyncio.to_thread(self.close)
        return self._ran(began, caught_up)

    def _is_over(self, began: float, max_seconds: float | None, until_caught_up: bool) -> bool:
        late = max_seconds is not None and time.monotonic() - began >= max_seconds
        if until_caught_up and self._is_caught_up(but_for_lost=True):
            lost = [task.lost for task in list(self._worker.tasks.values()) if task.lost is not None]
            if lost:  # the others are done, and waiting for this one would be in vain
                self._fail(lost[0])
            return True
        return late or self._ended.is_set() or self._closing.is_set()

    def _ran(self, began: float, caught_up: bool) -> UnitsRan:
        if self.failure is not None:
            raise self.failure
        return UnitsRan(self.handled, caught_up, time.monotonic() - began)

    @property
    def handled(self) -> int:
        """How many records the handler has taken."""
        return self._worker.handled

    @property
    def units(self) -> list[str]:
        """The units that this member holds now: shards of a stream, partitions of the feed."""
        return sorted(self._worker.tasks)

    @property
    def caught_up(self) -> bool:
        """Whether everything in its units is handled, as of the last read of each."""
        return self._is_caught_up()

    def _is_caught_up(self, but_for_lost: bool = False) -> bool:
        tasks = list(self._worker.tasks.values())
        known = self._looks > 0 and not self._due.is_set() and self._worker.settled and not self._worker.trouble
        return known and all(
            (but_for_lost and task.lost is not None)
            or (task.caught_up and task.asked >= self._since and not task.queue and task not in self._busy)
            for task in tasks
        )

    # -- life
    def start(self) -> None:
        """Join the group and begin to work, in the background."""
        self._store.check()
        if self._threads or self._closing.is_set():
            raise Closed("a consumer works once; make another")
        if self._is_async and self._loop is None:
            raise BadInput("the handler is an `async def`: use `await consumer.arun()`")
        self._store.run(self._join())
        self._store.run(self._worker.member.enter())
        self._beating = BeatThread(self._store, self._worker.member.beat, self._settings.ttl / 3)
        jobs = [("keep", self._keep), *((f"work-{n}", self._work) for n in range(self._settings.threads))]
        if watch(self._store).version() is not None:
            jobs.append(("wake", self._wake))
        name = self._worker.source.units.group
        self._threads = [threading.Thread(target=j, name=f"tailrace-{what}-{name}", daemon=True) for what, j in jobs]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Commit what was handled, give the units back and leave the group.  Handlers at work get 30 seconds to end; an
        `async def` that has not ended by then is cancelled.

        A forked child's copy does nothing: the member belongs to its parent."""
        if self._store.forked:
            return
        self._closing.set()
        self._worker.closing = True
        self._due.set()
        with self._changed:
            self._changed.notify_all()
        with self._ending:
            if self._beating is None:
                return
            deadline = time.monotonic() + (0 if isinstance(self.failure, HandlerStuck) else CLOSE_GRACE_SECONDS)
            for thread in self._threads:
                if thread not in self._hanging:
                    thread.join(max(0.0, deadline - time.monotonic()))
            for awaited in list(self._awaited.values()):
                awaited.cancel()
            beating, self._beating = self._beating, None
            try:
                self._give_back()
                beating.stop()  # before it leaves: a beat of a member that has left would bring it back
                self._store.run(self._worker.member.leave())
            except StorageError as error:
                title = self._worker.source.units.title
                log.warning("%s could not be left in order; others take over by themselves: %s", title, error)
            finally:
                beating.stop()

    def _give_back(self) -> None:
        for task in list(self._worker.tasks.values()):
            if task in self._busy:  # its handler hangs; what it returns later is refused
                self._store.run(lease.release(task.held))
            else:
                self._store.run(self._worker.release(task))
        self._worker.member.held.clear()

    def __enter__(self) -> UnitConsumer[R]:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close()
        if kind is None and self.failure is not None:
            raise self.failure

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._worker.closing = True
        self._ended.set()

    def _call(self, value: Any) -> Any:
        if not self._is_async:
            return self._handler(value)
        assert self._loop is not None
        mine = threading.current_thread()
        self._awaited[mine] = awaited = asyncio.run_coroutine_threadsafe(self._handler(value), self._loop)
        try:
            return awaited.result()
        finally:
            del self._awaited[mine]

    # -- in the background
    def _keep(self) -> None:
        """Look for units, share them, and check that no handler hangs."""
        ttl, looked, found = self._settings.ttl, 0.0, 0.0
        while not self._closing.is_set():
            now = time.monotonic()
            try:
                due = self._due.is_set() or not self._worker.settled or now - looked >= ttl / 3
                if due or self._store.run(self._worker.member.has_news()):
                    find = self._due.is_set() or now - found >= min(FIND_SECONDS, ttl / 3)
                    self._due.clear()
                    self._store.run(self._worker.look(find))
                    looked, found = now, now if find else found
                    self._looks += 1
                    with self._changed:
                        self._changed.notify_all()
                self._check_handlers()
            except StorageError as error:
                log.warning("%s: its units cannot be shared just now: %s", self._worker.source.units.title, error)
            except Closed:
                return
            except Exception as error:
                self._fail(error)
                return
            self._due.wait(ttl / ((20 if self._is_near else 10) if self._worker.settled else 50))

    @property
    def _is_near(self) -> bool:
        """Whether the home is on this machine, where looking costs no money."""
        return watch(self._store).version() is not None

    def _check_handlers(self) -> None:
        most = self._settings.max_handler_seconds
        for task in list(self._worker.tasks.values()):
            handling = task.handling
            if most is None or handling is None or self._store.clock() - handling[0] <= most:
                continue
            what = (
                f"{self._worker.source.units.title}: the handler has been at one record of {task.unit} for more than "
                f"{most:g} s (max_handler_seconds)"
            )
            if self._settings.on_error == "stop":
                raise HandlerStuck(f"{what}; this consumer ends, and its units go to others")
            self._hanging = {thread for thread in self._hanging if thread in self._busy.values()}
            if len(self._hanging) >= self._settings.threads:
                raise HandlerStuck(f"{what}, and as many others hang as this consumer has threads; it ends")
            awaited = self._replace_thread(task)
            self._store.run(self._worker.give_up(task, HandlerStuck(f"{what}; the record is passed over")))
            if awaited is not None:
                awaited.cancel()
            self._due.set()

    def _replace_thread(self, task: Task[R]) -> Future[Any] | None:
        """Abandon the thread whose handler hangs, and start another in its place.  Returns the call that the thread
        waits for, if the handler is an `async def`."""
        with self._changed:
            if (hanging := self._busy.get(task)) is not None:
                self._hanging.add(hanging)
        fresh = threading.Thread(target=self._work, name=f"{threading.current_thread().name}-again", daemon=True)
        self._threads.append(fresh)
        fresh.start()
        return None if hanging is None else self._awaited.get(hanging)

    def _work(self) -> None:
        mine = threading.current_thread()
        while mine not in self._hanging and (task := self._next()) is not None:
            found = False
            try:
                found = self._store.run(self._worker.turn(task))
            except Closed:
                return
            except Exception as error:
                self._fail(error)
            finally:
                with self._changed:
                    self._busy.pop(task, None)
                    pause = 0.0 if found else min(MAX_IDLE_SECONDS, max(MIN_POLL_SECONDS, 2 * task.pause))
                    task.pause, task.due = pause, self._store.clock() + pause
                    self._changed.notify()
            if task.unit not in self._worker.tasks:
                self._due.set()  # the unit ended or was given back: there may be others

    def _next(self) -> Task[R] | None:
        """The unit that has waited longest; None when it is time to stop."""
        with self._changed:
            while not self._closing.is_set() and self.failure is None:
                now = self._store.clock()
                free = [task for task in list(self._worker.tasks.values()) if task not in self._busy]
                ready = [task for task in free if max(task.due, task.not_before) <= now or task.leaving]
                if ready:
                    task = min(ready, key=lambda one: one.due)
                    self._busy[task] = threading.current_thread()
                    return task
                soon = min((max(task.due, task.not_before) for task in free), default=now + MAX_IDLE_SECONDS)
                self._changed.wait(max(0.001, soon - now))
            return None

    def _wake(self) -> None:
        """Read every unit again as soon as any process has written to the home's database."""
        watched = watch(self._store)
        seen = watched.version()
        while not self._closing.wait(VERSION_CHECK_SECONDS):
            try:
                now = watched.version()
            except (Closed, StorageError):
                return
            if now != seen:
                seen = now
                with self._changed:
                    for task in list(self._worker.tasks.values()):
                        task.due = 0.0
                    self._changed.notify_all()
