"""Handlers: the pool of threads that runs a worker's handler, and what the handler's end means for its messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tailrace.errors import Closed
from tailrace.queue.consumer import Consumer
from tailrace.queue.envelope import RAW, Codec, Envelope
from tailrace.queue.lanes import Entry
from tailrace.queue.settings import Settings, Working
from tailrace.queue.transaction import AckTransaction
from tailrace.storage.calls import Store

_log = logging.getLogger("tailrace")


class HandlerPool:
    """Threads that take messages of a consumer, call the handler, and tell the consumer how it ended."""

    def __init__(
        self,
        store: Store,
        consumer: Consumer,
        queue: str,
        handler: Callable[[Any], Any],
        settings: Settings,
        codec: Codec,
        working: Working,
        new_transaction: Callable[[], AckTransaction],
        on_end: Callable[[], None],
    ) -> None:
        self._store, self._consumer, self._queue, self._handler = store, consumer, queue, handler
        self._settings, self._codec, self._working = settings, codec, working
        self._new_transaction, self._on_end = new_transaction, on_end
        self._timeout = settings.timeout if working.timeout is None else working.timeout
        self._closing = False
        self._work = threading.Condition()
        self._busy: dict[int, list[tuple[Entry, int]]] = {}
        """By thread: its messages, each with the run that this is."""
        self._deadlines: dict[int, float] = {}
        self._threads = 0

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._working.threads):
            self._hire()

    def wake(self) -> None:
        """There are messages to be handled."""
        with self._work:
            self._work.notify_all()

    def close(self) -> None:
        """End each thread when its handler returns."""
        self._closing = True
        self.wake()

    @property
    def deadline(self) -> float | None:
        """When the first handler that runs has had its time; None: no handler has a limit."""
        return min(self._deadlines.values(), default=None) if self._deadlines else None

    # -- threads
    def _hire(self) -> None:
        self._threads += 1
        number = self._threads
        name = f"tailrace-handler-{self._queue}-{number}"
        threading.Thread(target=self._serve, args=(number,), name=name, daemon=True).start()

    def _serve(self, number: int) -> None:
        most = self._working.batch_size if self._working.batch else 1
        with self._work:
            self._busy[number] = []
        while True:
            with self._work:
                while not (entries := self._take(most)):
                    if self._closing:
                        self._busy.pop(number, None)
                        return
                    self._work.wait(1.0)
                if number not in self._busy:
                    return
                self._busy[number] = [(entry, entry.run) for entry in entries]
                if self._timeout is not None:
                    self._deadlines[number] = self._store.clock() + self._timeout
            self._handle(number, self._busy[number])
            with self._work:
                self._deadlines.pop(number, None)
                if number not in self._busy:
                    return
                self._busy[number] = []

    def _take(self, most: int) -> list[Entry]:
        with self._consumer.desks.lock:
            return [] if self._consumer.stopping else self._consumer.lanes.take(most)

    def expire(self) -> None:
        """Give up on handlers that took too long: their messages are tried again, their threads are replaced."""
        now = self._store.clock()
        with self._work:
            late = [number for number, at in self._deadlines.items() if at <= now]
            hung = {number: self._busy.pop(number, []) for number in late}
            for number in late:
                del self._deadlines[number]
        for entries in hung.values():
            for entry, run in entries:
                self._consumer.fail(entry, run, f"the handler took longer than {self._timeout:g} s", now=now)
            self._hire()

    # -- messages
    def _handle(self, number: int, entries: list[tuple[Entry, int]]) -> None:
        envelopes = [one for entry, run in entries if (one := self._envelope(entry, run, number)) is not None]
        if envelopes:
            try:
                self._call(envelopes if self._working.batch else envelopes[0])
            except Exception as error:
                self._failed(envelopes, error)
            except BaseException as error:  # a handler that ends the process, or this thread: the message is not done
                self._failed(envelopes, error)
                self._on_end()
                if not isinstance(error, SystemExit):
                    raise
            else:
                if not self._working.manual:
                    self._ack(envelopes)
        self._on_end()

    def _ack(self, envelopes: list[Envelope]) -> None:
        """Acknowledge what the handler has not settled itself."""
        done = [envelope for envelope in envelopes if not envelope.settled]
        for envelope in done:
            envelope.settled = True
        self._consumer.ack_all([(envelope.entry, _number(envelope)) for envelope in done])

    def _call(self, argument: Any) -> None:
        given = self._handler(argument)
        if inspect.isawaitable(given):
            asyncio.run(_awaited(given))

    def _envelope(self, entry: Entry, run: int, number: int) -> Envelope | None:
        """A message for a handler; one that cannot be read, or has ended too many consumers, is given up."""
        if entry.tries >= self._settings.attempts and self._working.acking:
            self._consumer.give_up(entry, run, f"its consumer disappeared {entry.tries} times while it was handled")
            return None
        try:
            data = entry.value or b""
            message = data if entry.attributes == RAW else self._codec.decode(data)
        except Exception as error:
            self._consumer.give_up(entry, run, f"the message cannot be decoded: {type(error).__name__}: {error}")
            return None
        deadline = self._deadlines.get(number)
        return Envelope(
            Run(self, run), entry, queue=self._queue, message=message, attempt=entry.tries + 1, deadline=deadline
        )

    def _failed(self, envelopes: list[Envelope], error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        final = self._settings.is_final(error)
        for envelope in envelopes:
            if not envelope.settled:
                envelope.settled = True
                now = self._store.clock()
                if what := self._consumer.fail(envelope.entry, _number(envelope), reason, now=now, final=final):
                    self._tell(envelope, what, reason, error)

    def _tell(self, envelope: Envelope, what: str, reason: str, error: BaseException) -> None:
        """Log that an attempt failed; the first time also where in the handler's own code."""
        where = error.with_traceback(_own_frames(error.__traceback__)) if envelope.attempt == 1 else None
        _log.warning(
            "queue %s: message %d:%d failed, attempt %d of %d, and %s: %s", self._queue, envelope.shard,
            envelope.offset, envelope.attempt, self._settings.attempts, what, reason, exc_info=where,
        )  # fmt: skip


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback from where it leaves this module."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


async def _awaited(given: Any) -> Any:
    return await given


def _number(envelope: Envelope) -> int:
    run: Run = envelope._acks  # type: ignore[assignment]
    return run.number


class Run:
    """One run of a handler: takes the acknowledgements of its messages."""

    __slots__ = ("number", "pool")

    def __init__(self, pool: HandlerPool, number: int) -> None:
        self.pool, self.number = pool, number

    def ack(self, envelope: Envelope) -> None:
        """It is done."""
        if not envelope.settled:
            envelope.settled = True
            self.pool._consumer.ack(envelope.entry, self.number)
            self.pool._on_end()

    def retry(self, envelope: Envelope, after: float | None) -> None:
        """It is handed out again."""
        if not envelope.settled:
            envelope.settled = True
            now = self.pool._store.clock()
            reason = "its handler asked for a retry"
            self.pool._consumer.fail(envelope.entry, self.number, reason, now=now, after=after)
            self.pool._on_end()

    def dead(self, envelope: Envelope, reason: str) -> None:
        """It goes to the dead letters."""
        if not envelope.settled:
            envelope.settled = True
            self.pool._consumer.give_up(envelope.entry, self.number, reason)
            self.pool._on_end()

    def transaction(self, envelope: Envelope) -> AckTransaction:
        """Writes that commit together with its acknowledgement."""
        pool, transaction = self.pool, self.pool._new_transaction()

        def finish(t: AckTransaction) -> None:
            if envelope.settled:
                raise Closed("this message was acknowledged already, so nothing can be committed with it")
            pool._store.run(pool._consumer.transact(envelope.entry, self.number, t))
            envelope.settled = True

        transaction.finish = finish
        return transaction
