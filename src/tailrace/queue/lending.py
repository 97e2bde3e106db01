"""Lending: messages for programs that have no handler here, such as HTTP clients.  A loan ends by `ack`, `retry` or
`dead`, or when its time is over; then the message is handed out again, and that counts as a failed attempt.

A lender is one consumer of the queue: the guarded writes are those of any worker.  When its process dies, its shards
go to others after the consumers' `ttl`, with every message that was on loan.  A loan is known only to its lender.
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
"""Messages of a shard that wait here for a borrower: few, since other consumers do not get them meanwhile."""
IDLE_SECONDS = 30.0
"""A lender that is not asked for so long, and has lent nothing, leaves: its shards go to the other consumers."""
MOST_REMEMBERED = 10_000
"""Loans that have ended and are remembered, so that an `ack` that is sent again has the same answer."""
LONGEST_LOAN = 12 * 3600.0

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
        """Whether the message was given as bytes, not through the queue's codec."""
        return self.entry.attributes == RAW


class Lender(Worker):
    """A consumer of a queue that lends its messages out.  Any thread may use it; nothing here waits for storage."""

    def __init__(self, queue: Queue, *, idle_seconds: float = IDLE_SECONDS, **working: Any) -> None:
        self._idle_seconds = idle_seconds
        topic, given = queue.topic(), Working.of({"batch_size": BATCH_SIZE, **working})
        super().__init__(
            topic, queue.name, _no_handler, queue.settings, queue.codec, given, queue._new_transaction,
            wall=queue._wall,
        )  # fmt: skip

    def _new_pool(self, handler: Any, settings: Settings, *_: Any) -> Loans:
        return Loans(self._store, self._consumer, settings, self._idle_seconds, self._leave)

    def _leave(self) -> None:
        """No client has asked for long: give the shards back."""
        self._closing.set()
        self._wake.set()

    @property
    def loans(self) -> Loans:
        """What is on loan."""
        loans: Loans = self._pool
        return loans

    # -- borrowing
    def take(self, most: int, seconds: float) -> list[Loan]:
        """Messages that may be handled now, at most so many, on loan for so many seconds."""
        return self.loans.take(most, seconds)

    def extend(self, id: str, seconds: float) -> Loan:
        """Let a loan last for so many seconds from now."""
        return self.loans.extend(id, seconds)

    def ack(self, id: str) -> None:
        """A message is done; `settled` tells when that is stored."""
        self.loans.end(id, "acked")
        self._wake.set()

    def retry(self, id: str, after: float | None = None, reason: str = "") -> None:
        """Hand a message out again, after so many seconds, or as the queue's backoff says."""
        self.loans.end(id, "retried", reason or "its borrower asked for a retry", after)
        self._wake.set()

    def dead(self, id: str, reason: str) -> None:
        """Put a message with the dead letters."""
        self.loans.end(id, "dead", reason)
        self._wake.set()

    def settled(self, id: str) -> How | None:
        """How a loan has ended, once that is stored; None: not yet.  `Fenced` if another consumer has the message."""
        ended, how = not self.running, self.loans.settled(id)
        if how is None and ended:
            raise unknown(id)
        return how

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Have a listener called when there may be a message, or a loan may be settled; gives the way to stop that."""
        return self.loans.listen(listener)


class Loans:
    """What a consumer's messages are lent out with, in place of a pool of handlers."""

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
    """Borrowers' threads are their own."""

    def start(self) -> None:
        """There are no threads to start."""

    def wake(self) -> None:
        """There are messages to be lent, or a round is over."""
        for listener in list(self._listeners):
            listener()

    def close(self) -> None:
        """Lend nothing more."""
        self._closing = True
        self.wake()

    @property
    def deadline(self) -> float | None:
        """When the first loan is over."""
        with self._lock:
            return min((loan.deadline for loan in self._open.values()), default=None)

    def expire(self) -> None:
        """End loans whose time is over; leave, if no client has asked for long."""
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
        """Messages that may be handled now; one key's are lent one at a time."""
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
            self._consumer.give_up(entry, run, f"its consumer disappeared {entry.tries} times while it was handled")
            return None
        loan = Loan(secrets.token_urlsafe(12), entry, run, seconds, self._store.clock() + seconds, entry.tries + 1)
        with self._lock:
            self._open[loan.id] = loan
        return loan

    def extend(self, id: str, seconds: float) -> Loan:
        """Let a loan last for so many seconds from now."""
        check_seconds(seconds)
        with self._lock:
            loan = self._open.get(id)
            if loan is None or loan.entry.dropped:
                raise unknown(id)
            loan.seconds, loan.deadline = seconds, self._store.clock() + seconds
        return loan

    def end(self, id: str, how: How, reason: str = "", after: float | None = None) -> None:
        """End a loan; one that has ended the same way is left as it is."""
        self._asked = self._store.clock()
        check_pause(after)
        with self._lock:
            loan = self._open.pop(id, None)
            if loan is None and id in self._ended and self._ended[id][1] == how:
                return
        if loan is None or not self._tell(loan, how, reason, after):
            raise unknown(id)
        with self._lock:
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
        """How a loan has ended, once that is stored."""
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
        """Have a listener called after each round."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

        def stop() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not listener]
            self._asked = self._store.clock()

        return stop


def _no_handler(_: Any) -> None:
    """A lender's messages are handled elsewhere."""


def check_seconds(seconds: float) -> None:
    """Refuse a loan that lasts no time, or for ever."""
    if not 0 < seconds <= LONGEST_LOAN:
        raise BadInput(f"a message is lent for 1 to {LONGEST_LOAN:,.0f} seconds, not {seconds!r}")


def unknown(id: str) -> Fenced:
    """What a loan is answered with that is not open here."""
    return Fenced(
        f"there is no loan {id[:40]!r} here: its time was over, it was settled otherwise, or this server has started "
        "since; the message is handed out again unless it was acknowledged"
    )
