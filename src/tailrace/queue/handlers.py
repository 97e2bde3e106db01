"""Handlers: the pool of threads that calls a worker's handler, and what each call's end means for its messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from tailrace.errors import HandlerStuck
from tailrace.queue.consumer import Consumer
from tailrace.queue.diary import clean
from tailrace.queue.envelope import RAW, Codec, Envelope
from tailrace.queue.lanes import Entry
from tailrace.queue.run import Run
from tailrace.queue.settings import Settings, Working
from tailrace.queue.transaction import AckTransaction
from tailrace.storage.calls import Store

_log = logging.getLogger("tailrace")
MOST_HUNG = 8
"""Calls that have run over their time and not ended, for each thread of the pool; with more of them the worker ends,
rather than fill its process with threads.
"""


class HandlerPool:
    """Threads that take a consumer's messages, call the handler with them, and report the outcomes to the consumer."""

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
        """By thread number: its messages, each with the number of the handler's run."""
        self._deadlines: dict[int, float] = {}
        self._threads = self._hung = 0
        self._thread = threading.local()

    @property
    def in_handler(self) -> bool:
        """Whether the calling thread belongs to this pool, and so is inside the handler."""
        return getattr(self._thread, "is_one", False)

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._working.threads):
            self._hire()

    def wake(self) -> None:
        """Wake the threads: there are messages to handle."""
        with self._work:
            self._work.notify_all()

    def close(self) -> None:
        """End each thread when its handler returns; does not wait."""
        self._closing = True
        self.wake()

    @property
    def deadline(self) -> float | None:
        """When the first running handler has used up its time; None if handlers have no limit, or none runs."""
        return min(self._deadlines.values(), default=None) if self._deadlines else None

    # -- threads
    def _hire(self) -> None:
        self._threads += 1
        number = self._threads
        name = f"tailrace-handler-{self._queue}-{number}"
        threading.Thread(target=self._serve, args=(number,), name=name, daemon=True).start()

    def _serve(self, number: int) -> None:
        most = self._working.batch_size if self._working.batch else 1
        self._thread.is_one = True
        with self._work:
            self._busy[number] = []
        while True:
            with self._work:
                while not (entries := self._consumer.take(most, self._store.clock())):
                    if self._closing:
                        self._busy.pop(number, None)
                        return
                    self._work.wait(1.0)
                self._busy[number] = [(entry, entry.run) for entry in entries]
                if self._timeout is not None:
                    self._deadlines[number] = self._store.clock() + self._timeout
            self._handle(number, self._busy[number])
            with self._work:
                self._deadlines.pop(number, None)
                if number not in self._busy:  # its time was over, and another thread has replaced this one
                    self._hung -= 1
                    return
                self._busy[number] = []

    def expire(self) -> None:
        """Give up on handlers that took too long: fail their messages and replace their threads.  Raises `HandlerStuck`
        with too many of them."""
        now = self._store.clock()
        with self._work:
            late = [number for number, at in self._deadlines.items() if at <= now]
            hung = {number: self._busy.pop(number, []) for number in late}
            for number in late:
                del self._deadlines[number]
            self._hung += len(late)
        for entries in hung.values():
            reason, together = f"the handler took longer than {self._timeout:g} s", len(entries) > 1
            for entry, run in entries:
                self._consumer.fail(entry, run, reason, now=now, together=together)
            self._hire()
        if self._hung > MOST_HUNG * self._working.threads:
            raise HandlerStuck(
                f"{self._hung} calls of the handler of queue {self._queue!r} have taken longer than "
                f"{self._timeout:g} s and have not ended, so this consumer ends; start its process again"
            )

    # -- messages
    def _handle(self, number: int, entries: list[tuple[Entry, int]]) -> None:
        envelopes = [one for entry, run in entries if (one := self._envelope(entry, run, number)) is not None]
        if envelopes:
            try:
                self._call(envelopes if self._working.batch else envelopes[0])
            except BaseException as error:  # also SystemExit, CancelledError: they must end neither process nor thread
                self._end_child(error)
                self._failed(envelopes, error)
            else:
                self._end_child(None)
                if not self._working.manual:
                    self._ack(envelopes)
        self._on_end()

    def _end_child(self, error: BaseException | None) -> None:
        """End the process if it is a child that the handler has forked: the child must not go on with its parent's
        messages."""
        if not self._store.forked:
            return
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            code = int(error is not None)
            if error is not None:
                traceback.print_exception(error)
        sys.stdout.flush()
        os._exit(code)

    def _ack(self, envelopes: list[Envelope]) -> None:
        """Acknowledge the messages that the handler has not settled itself."""
        done = [envelope for envelope in envelopes if not envelope.settled]
        for envelope in done:
            envelope.settled = True
        self._consumer.ack_all([(envelope.entry, _number(envelope)) for envelope in done])

    def _call(self, argument: Any) -> None:
        given = self._handler(argument)
        if inspect.isawaitable(given):
            asyncio.run(_awaited(given))
        elif inspect.isgenerator(given) or inspect.isasyncgen(given):
            raise TypeError("the handler returned a generator, so nothing of it has run: call it without `yield`")
        elif isinstance(given, Future) and not self._working.manual:
            raise TypeError(
                "the handler returned a Future, which may not be done yet: wait for it in the handler, or use "
                "manual=True and call envelope.ack() when it is done"
            )

    def _envelope(self, entry: Entry, run: int, number: int) -> Envelope | None:
        """Return a message's envelope.  Gives up a message that cannot be decoded, or whose consumers have disappeared
        too often, and returns None."""
        if entry.tries >= self._settings.attempts and self._working.acking:
            self._consumer.give_up(entry, run, entry.why_given_up)
            return None
        try:
            data = entry.value or b""
            message = data if entry.attributes == RAW else self._codec.decode(data)
        except Exception as error:
            self._consumer.give_up(entry, run, f"the message cannot be decoded: {_told(error)}")
            return None
        deadline = self._deadlines.get(number)
        return Envelope(
            Run(self, run), entry, queue=self._queue, message=message, attempt=entry.tries + 1, deadline=deadline
        )

    def _failed(self, envelopes: list[Envelope], error: BaseException) -> None:
        reason, final = _told(error), self._settings.is_final(error)
        failed = [envelope for envelope in envelopes if not envelope.settled]
        for envelope in failed:
            envelope.settled = True
            what = self._consumer.fail(
                envelope.entry, _number(envelope), reason, now=self._store.clock(), final=final,
                together=len(failed) > 1,
            )  # fmt: skip
            if what:
                self._tell(envelope, what, reason, error)

    def _tell(self, envelope: Envelope, what: str, reason: str, error: BaseException) -> None:
        """Log a failed attempt; the first attempt also with the traceback inside the handler's own code."""
        where = error.with_traceback(_own_frames(error.__traceback__)) if envelope.attempt == 1 else None
        if where is not None and not _is_unicode(trace := "".join(traceback.format_exception(where))):
            reason, where = f"{reason}\n{trace}", None  # a log file in UTF-8 could not store it
        _log.warning(
            "queue %s: message %d:%d failed, attempt %d of %d, and %s: %s", self._queue, envelope.shard,
            envelope.offset, envelope.attempt, self._settings.attempts, what, clean(reason), exc_info=where,
        )  # fmt: skip


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: names of files that are not UTF-8 contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback below this module's frames."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _told(error: BaseException) -> str:
    """An error's class and message, even if its `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


async def _awaited(given: Any) -> Any:
    return await given


def _number(envelope: Envelope) -> int:
    run: Run = envelope._acks  # type: ignore[assignment]
    return run.number
