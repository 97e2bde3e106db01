"""Lending: messages for programs that have no handler in this process, such as HTTP clients.  `ack`, `retry` or `dead`
ends a loan.  If its time runs out first, the message is handed out again, and that counts as a failed attempt.

A lender is one consumer of the queue: its guarded writes are those of any worker.  When its process dies, its shards go
to other consumers after the consumers' `ttl`, with every message that was on loan.  Only the lender itself knows its
loans.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tailrace.errors import BadInput, Fenced
from tailrace.queue.consumer import Consumer
from tailrace.queue.envelope import RAW
from tailrace.queue.lanes import Entry
from tailrace.queue.queue import Queue
from tailrace.queue.run import check_pause
from tailrace.queue.settings import Settings, Working
from tailrace.queue.shard import Shard
from tailrace.queue.worker import Worker
from tailrace.storage.calls import Store

BATCH_SIZE = 16
"""Messages of a shard that wait in the lender for a borrower: few, since other consumers do not get them meanwhile."""
IDLE_SECONDS = 30.0
"""Seconds after which a lender without loans and requests leaves: its shards go to the other consumers."""
MOST_REMEMBERED = 10_000
"""Ended loans that the lender remembers, so that a repeated `ack` gets the same answer."""
LONGEST_LOAN = 12 * 3600.0
"""Seconds that one loan lasts, at most."""

How: TypeAlias = Literal["acked", "retried", "dead"]


@dataclass(slots=True)
class Loan:
    """A message on loan; `deadline` is by the store's clock."""

    id: str
    entry: Entry
    run: int
    seconds: float
    deadline: float
    attempt: int

    @property
    def raw(self) -> bool:
        """Whether the message was pushed as bytes, without the queue's codec."""
        return self.entry.attributes == RAW


class Lender(Worker):
    """A consumer of a queue that lends its messages out.  Any thread may use it; its own methods do not wait for
    storage."""

    def __init__(self, queue: Queue, *, idle_seconds: float = IDLE_SECONDS, **working: Any) -> None:
        self._idle_seconds = idle_seconds
        topic, given = queue.topic(), Working.of({"batch_size": BATCH_SIZE, **working})
        super().__init__(
            topic, queue.name, _no_handler, queue.settings, queue.codec, given, queue._new_transaction,
            wall=queue._wall,
        )  # fmt: skip

    def _new_pool(self, handler: Any, settings: Settings, *_: Any) -> Loans:
        return Loans(self._store, self._consumer, settings, self._idle_seconds, self.shutdown)

    @property
    def loans(self) -> Loans:
        """The open loans of this lender."""
        loans: Loans = self._pool
        return loans

    # -- borrowing
    def take(self, most: int, seconds: float) -> list[Loan]:
        """Lend up to `most` messages that may be handled now, for `seconds` each."""
        return self.loans.take(most, seconds)

    def extend(self, id: str, seconds: float) -> Loan:
        """Make a loan end `seconds` from now; raises `Fenced` if it has ended."""
        return self.loans.extend(id, seconds)

    def ack(self, id: str) -> None:
        """End a loan and acknowledge its message; `settled` says when that is stored."""
        self.loans.end(id, "acked")
        self._wake.set()

    def retry(self, id: str, after: float | None = None, reason: str = "") -> None:
        """End a loan and have its message handed out again, after this many seconds or after the queue's backoff."""
        self.loans.end(id, "retried", reason or "its borrower asked for a retry", after)
        self._wake.set()

    def dead(self, id: str, reason: str) -> None:
        """End a loan and put its message with the dead letters."""
        self.loans.end(id, "dead", reason)
        self._wake.set()

    def settled(self, id: str) -> How | None:
        """Return how a loan has ended, or None until that is stored.  Raises `Fenced` if the loan is unknown or another
        consumer has the message."""
        ended, how = not self.running, self.loans.settled(id)
        if how is None and ended:
            raise unknown(id)
        return how

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` whenever there may be a message, or a loan may be settled.  Returns a function that stops the
        calls."""
        return self.loans.listen(listener)


class Loans:
    """The messages of a consumer that are on loan; a `Lender` has them in place of a pool of handlers."""

    def __init__(
        self, store: Store, consumer: Consumer, settings: Settings, idle_seconds: float, leave: Callable[[], None]
    ) -> None:
        self._store, self._consumer, self._settings = store, consumer, settings
        self._idle_seconds, self._leave = idle_seconds, leave
        self._lock = threading.Lock()
        self._open: dict[str, Loan] = {}
        self._ended: OrderedDict[str, tuple[Loan, How]] = OrderedDict()
        self._listeners: list[Callable[[], object]] = []
        self._asked = store.clock()
        self._closing = False

    # -- as the worker sees it
    in_handler = False
    """Always False: no thread of the worker runs a handler."""

    def start(self) -> None:
        """Do nothing: there are no threads to start."""

    def wake(self) -> None:
        """Call the listeners: there are messages to lend, or a round is over."""
        for listener in list(self._listeners):
            listener()

    def close(self) -> None:
        """Lend nothing more."""
        self._closing = True
        self.wake()

    @property
    def deadline(self) -> float | None:
        """When the first loan runs out; None without loans."""
        with self._lock:
            return min((loan.deadline for loan in self._open.values()), default=None)

    def expire(self) -> None:
        """End the loans whose time is over, and leave if no client has asked for long."""
        now = self._store.clock()
        with self._lock:
            late = [loan for loan in self._open.values() if loan.deadline <= now]
            for loan in late:
                del self._open[loan.id]
            idle = not self._open and not self._listeners and now - self._asked > self._idle_seconds
        for loan in late:
            reason = f"its loan of {loan.seconds:g} s was over before it was acknowledged"
            self._consumer.fail(loan.entry, loan.run, reason, now=now)
        self.wake()
        if idle:
            self._leave()

    # -- as borrowers see it
    def take(self, most: int, seconds: float) -> list[Loan]:
        """Lend up to `most` messages that may be handled now; only one of each key at a time."""
        check_seconds(seconds)
        out: list[Loan] = []
        self._asked = self._store.clock()
        while len(out) < most and not self._closing:
            if not (found := self._consumer.take(1, self._store.clock())):
                break
            if (loan := self._lent(found[0], seconds)) is not None:
                out.append(loan)
        return out

    def _lent(self, entry: Entry, seconds: float) -> Loan | None:
        run = entry.run
        if entry.tries >= self._settings.attempts:
            self._consumer.give_up(entry, run, entry.why_given_up)
            return None
        loan = Loan(secrets.token_urlsafe(12), entry, run, seconds, self._store.clock() + seconds, entry.tries + 1)
        with self._lock:
            self._open[loan.id] = loan
        return loan

    def extend(self, id: str, seconds: float) -> Loan:
        """Make a loan end `seconds` from now; raises `Fenced` if it has ended."""
        check_seconds(seconds)
        with self._lock:
            loan = self._open.get(id)
            if loan is None or loan.entry.dropped:
                raise unknown(id)
            loan.seconds, loan.deadline = seconds, self._store.clock() + seconds
        return loan

    def end(self, id: str, how: How, reason: str = "", after: float | None = None) -> None:
        """End a loan.  Does nothing if it has already ended the same way, and raises `Fenced` if it is unknown."""
        self._asked = self._store.clock()
        check_pause(after)
        with self._lock:
            loan = self._open.pop(id, None)
            if loan is None and id in self._ended and self._ended[id][1] == how:
                return
            if loan is None or not self._tell(loan, how, reason, after):
                raise unknown(id)
            self._ended[id] = loan, how
            while len(self._ended) > MOST_REMEMBERED:
                self._ended.popitem(last=False)

    def _tell(self, loan: Loan, how: How, reason: str, after: float | None) -> bool:
        if how == "acked":
            return self._consumer.ack(loan.entry, loan.run)
        if how == "dead":
            return self._consumer.give_up(loan.entry, loan.run, reason)
        return bool(self._consumer.fail(loan.entry, loan.run, reason, now=self._store.clock(), after=after))

    def settled(self, id: str) -> How | None:
        """Return how a loan has ended, or None until that is stored; raises `Fenced` if the loan is unknown or another
        consumer has the message."""
        with self._lock:
            if id not in self._ended:
                raise unknown(id)
            loan, how = self._ended[id]
        shard = loan.entry.shard
        assert isinstance(shard, Shard)
        if how == "retried" or shard.stored.is_done(loan.entry.offset):
            return how
        if loan.entry.dropped:
            raise Fenced(
                f"another consumer has shard {loan.entry.partition} by now: the message may be handed out again"
            )
        return None

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` after each round; returns a function that stops the calls."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

        def stop() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not listener]
            self._asked = self._store.clock()

        return stop


def _no_handler(_: Any) -> None:
    """Do nothing: a lender's messages are handled in other programs."""


def check_seconds(seconds: float) -> None:
    """Raise `BadInput` for a loan of no time, or of more than `LONGEST_LOAN` seconds."""
    if not 0 < seconds <= LONGEST_LOAN:
        raise BadInput(f"a message is lent for 1 to {LONGEST_LOAN:,.0f} seconds, not {seconds!r}")


def unknown(id: str) -> Fenced:
    """Make the error for a loan that this lender does not have."""
    return Fenced(
        f"there is no loan {id[:40]!r} here: its time was over, it was settled otherwise, or this server has started "
        "since; the message is handed out again unless it was acknowledged"
    )
