"""Workers: a consumer with its threads.  One thread makes the consumer's rounds, a pool of threads runs the handler.

`shutdown` ends a worker: it hands out nothing more, waits for running handlers, writes their outcomes, and gives its
shards back.
"""

from __future__ import annotations

import inspect
import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from tailrace.coordination.bell import Bell
from tailrace.coordination.lease import BeatThread, new_number
from tailrace.coordination.watch import watch
from tailrace.errors import (
    BadSetting,
    Broken,
    Closed,
    Fenced,
    OutcomeUnknown,
    StorageError,
    TailraceError,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)
from tailrace.log.groups.group import Group
from tailrace.log.topic import Topic
from tailrace.log.topic_log import TopicLog
from tailrace.queue import dead_letters
from tailrace.queue.consumer import Consumer, QueueMember
from tailrace.queue.envelope import Codec
from tailrace.queue.handlers import HandlerPool
from tailrace.queue.settings import Settings, Working
from tailrace.queue.shard import GROUP
from tailrace.queue.transaction import AckTransaction
from tailrace.storage import forks

_log = logging.getLogger("tailrace")
BEAT = 2.0
"""Seconds between heartbeats."""
COMPLAINT_SECONDS = 60.0
"""Seconds after which a failure that lasts is logged again."""
IDLE_CLOUD = 0.1
"""Seconds between looks at a queue's end in the cloud, at first; without new messages they grow to one second."""


class Worker:
    """A running consumer of a queue.  `queue.tail(handler)` makes it; `shutdown`, or leaving a `with` block, ends
    it."""

    def __init__(
        self,
        topic: Topic,
        queue: str,
        handler: Callable[[Any], Any],
        settings: Settings,
        codec: Codec,
        working: Working,
        new_transaction: Callable[[], AckTransaction],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._topic, self._store, self._queue, self._working = topic, topic.store, queue, working
        group = Group(GROUP, topic.log, topic.partitions)
        number = new_number()
        self._member = QueueMember(group, number, name=working.name, ttl=working.ttl, wall=wall)
        self.id = self._member.name
        """The consumer's name in stats and logs."""
        self._store.run(self._member.join("earliest"))  # first, since it may raise: nothing is open yet
        self._wake = Bell(*getattr(self._store.table, "commit_files", ()))
        self._consumer = Consumer(
            topic.log, self._member, settings, acking=working.acking, batch_size=working.batch_size,
            dead_log=self._dead_log, wall=wall, rng=self._store.rng, on_ready=self._wake_handlers,
        )  # fmt: skip
        self._pool = self._new_pool(handler, settings, codec, new_transaction)
        self._closing, self._ended = threading.Event(), threading.Event()
        self._complaint: tuple[type[Exception] | None, float] = (None, 0.0)
        self._ending = threading.Lock()
        self.error: Exception | None = None
        """Why the worker has ended by itself; None if `shutdown` ended it, or while it runs."""
        forks.watch(self)
        self._beating = BeatThread(self._store, self._member.beat, min(BEAT, working.ttl / 2.5))
        self._engine = threading.Thread(target=self._run, name=f"tailrace-queue-{queue}", daemon=True)
        self._engine.start()
        self._pool.start()

    def _new_pool(
        self,
        handler: Callable[[Any], Any],
        settings: Settings,
        codec: Codec,
        new_transaction: Callable[[], AckTransaction],
    ) -> Any:
        """Make what takes messages from the consumer: here, threads that call the handler."""
        return HandlerPool(
            self._store, self._consumer, self._queue, handler, settings, codec, self._working, new_transaction,
            self._wake.set,
        )  # fmt: skip

    def left_behind(self) -> None:
        """Called in a forked child: close this copy without effect, since the worker belongs to the parent process."""
        self._closing.set()

    @staticmethod
    def check_handler(handler: Any) -> None:
        """Raise `BadSetting` for an object that cannot be a handler."""
        if not callable(handler):
            raise BadSetting(f"a handler is a function that takes an envelope, not a {type(handler).__name__}")
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise BadSetting("a handler is a function without `yield`: a call of this one would run nothing of it")

    # -- what people see
    @property
    def acking(self) -> bool:
        """Whether a message is acknowledged when its handler returns, and not already when it is handed out."""
        return self._working.acking

    @property
    def batch_size(self) -> int:
        """How many messages of a shard the consumer emits at a time."""
        return self._working.batch_size

    @property
    def shards(self) -> list[int]:
        """The shards that this consumer owns now."""
        with self._consumer.desks.lock:
            return sorted(key for key in self._consumer.desks if isinstance(key, int))

    @property
    def emitted(self) -> int:
        """Messages that this worker has emitted so far."""
        return self._consumer.emitted

    @property
    def acked(self) -> int:
        """Messages that this worker has acknowledged so far."""
        return self._consumer.acked

    @property
    def errored(self) -> int:
        """Attempts that failed in this worker so far."""
        return self._consumer.errored

    @property
    def dead_letters(self) -> int:
        """Messages that this worker has given up so far."""
        return self._consumer.died

    @property
    def running(self) -> bool:
        """Whether the worker has not ended."""
        return not self._ended.is_set()

    # -- the engine
    def _run(self) -> None:
        stop = watch(self._store).listen(self._topic.id, self._wake.set)
        idle = IDLE_CLOUD
        try:
            while not self._done():
                self._wake.clear()
                version = watch(self._store).version()
                emitted = self._consumer.emitted
                try:
                    seconds = self._store.run(self._consumer.round())
                except (StorageError, Fenced, OutcomeUnknown) as error:
                    if isinstance(error, Broken):
                        raise  # the disk failed: only another process, or opening the home again, helps
                    self._complain(error)
                    seconds = 0.5
                self._pool.expire()
                idle = IDLE_CLOUD if self._consumer.emitted > emitted else min(1.0, idle * 1.5)
                self._rest(seconds, version, idle)
        except (UnknownTopic, UnknownGroup, UnknownQueue):
            self.error = UnknownQueue(f"queue {self._queue!r} was deleted, so its worker {self.id} has ended")
            _log.warning("%s", self.error)
        except Exception as error:
            if not isinstance(error, Closed):
                _log.exception("queue %s: this worker ends", self._queue)
            self.error = error
        finally:
            stop()
            self._end()

    def _complain(self, error: Exception) -> None:
        """Log that a round failed: for a failure that lasts, which may be hours, once a minute."""
        kind, until = self._complaint
        if kind is not type(error) or self._store.clock() >= until:
            _log.warning("queue %s: a round failed and is tried again: %s", self._queue, error)
            self._complaint = type(error), self._store.clock() + COMPLAINT_SECONDS

    def _done(self) -> bool:
        if not self._closing.is_set():
            return False
        self._consumer.stop()
        return not self._consumer.desks or self._store.clock() >= self._last_moment

    def _rest(self, seconds: float, version: int | None, idle: float) -> None:
        """Wait until a handler has ended, a message was pushed, or `seconds` have passed."""
        if seconds <= 0:
            return
        until = self._store.clock() + min(seconds, 1.0)
        if (deadline := self._pool.deadline) is not None:
            until = min(until, deadline)
        while not self._wake.is_set() and (left := until - self._store.clock()) > 0:
            if version is None:
                self._wake.wait(min(left, idle))
                return
            if watch(self._store).version() != version:
                return
            self._wake.wait(min(left, self._wake.pause))

    def _end(self) -> None:
        self._closing.set()
        self._pool.close()
        try:
            self._beating.stop()
            self._store.run(self._consumer.leave())
        except TailraceError as error:
            _log.warning("queue %s: this worker could not say that it leaves: %s", self._queue, error)
        self._wake.close()
        self._ended.set()
        self._pool.wake()

    def _wake_handlers(self) -> None:
        self._pool.wake()

    def _dead_log(self) -> TopicLog:
        log = dead_letters.log_of(self._store, self._queue, self._topic.id)
        log.on_commit = lambda: watch(self._store).signal(log.id)
        return log

    # -- the end
    @property
    def _last_moment(self) -> float:
        return -math.inf if self._hurried else self._stopped_at + self._working.grace

    _stopped_at, _hurried = 0.0, False

    def shutdown(self, grace: float | None = None) -> None:
        """Hand out nothing more, wait for running handlers, write their outcomes, and give the shards back.

        Safe from any thread; called inside a handler, or by the worker itself, it returns without waiting.  In a forked
        child it does nothing.
        """
        if self._store.forked:
            return
        with self._ending:
            if not self._closing.is_set():
                self._stopped_at = self._store.clock() + ((grace - self._working.grace) if grace is not None else 0.0)
                self._closing.set()
        self._wake.set()
        self._pool.close()
        if threading.current_thread() is not self._engine and not self._pool.in_handler:
            self._ended.wait()

    def _hurry(self) -> None:
        """Make a shutdown that is under way stop waiting for handlers."""
        self._hurried = True
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the worker has ended; returns False if `timeout` seconds pass first."""
        return self._ended.wait(timeout)

    def run_forever(self) -> None:
        """Work until SIGINT or SIGTERM, then shut down cleanly; a second signal ends the wait for running handlers.

        Call it in the main thread only, since it sets signal handlers.  Raises the worker's error if the worker ends by
        itself."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        stop = threading.Event()

        def asked(*_: object) -> None:
            if stop.is_set():
                self._hurry()
            stop.set()

        for number in before:
            signal.signal(number, asked)
        try:
            while not stop.wait(0.2) and self.running:
                pass
            if busy := self._consumer.busy:
                _log.warning(
                    "queue %s: waiting for %d messages that handlers are at work on, for up to %g s; Ctrl-C again "
                    "does not wait, and leaves them to others", self._queue, busy, self._working.grace,
                )  # fmt: skip
        finally:
            self.shutdown()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
