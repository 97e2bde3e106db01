"""Runs: one call of a handler for its messages, and how each message's envelope reports the outcome."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailrace.errors import BadInput, Closed
from tailrace.queue.envelope import Envelope
from tailrace.queue.transaction import AckTransaction

if TYPE_CHECKING:
    from tailrace.queue.handlers import HandlerPool


def check_pause(after: float | None) -> float | None:
    """Return the pause before another run for a message, or raise `BadInput` if it is not a number of seconds from
    0."""
    if after is None:
        return None
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after < math.inf:
        raise BadInput(f"a message is tried again after a number of seconds from 0, not {after!r}")
    return after


class Run:
    """One call of a handler.  Envelopes report to it, and it passes their outcomes to the consumer."""

    __slots__ = ("number", "pool")

    def __init__(self, pool: HandlerPool, number: int) -> None:
        self.pool, self.number = pool, number

    def ack(self, envelope: Envelope) -> None:
        """Acknowledge the message, unless its outcome is settled."""
        self.pool._store.check()
        if not envelope.settled:
            envelope.settled = True
            self.pool._consumer.ack(envelope.entry, self.number)
            self.pool._on_end()

    def retry(self, envelope: Envelope, after: float | None) -> None:
        """Count a failed attempt and have the message handed out again, unless its outcome is settled."""
        self.pool._store.check()
        check_pause(after)
        if not envelope.settled:
            envelope.settled = True
            now = self.pool._store.clock()
            reason = "its handler asked for a retry"
            self.pool._consumer.fail(envelope.entry, self.number, reason, now=now, after=after)
            self.pool._on_end()

    def dead(self, envelope: Envelope, reason: str) -> None:
        """Put the message with the dead letters, unless its outcome is settled."""
        self.pool._store.check()
        reason = str(reason)
        if not envelope.settled:
            envelope.settled = True
            self.pool._consumer.give_up(envelope.entry, self.number, reason)
            self.pool._on_end()

    def transaction(self, envelope: Envelope) -> AckTransaction:
        """Return a transaction that commits together with the message's acknowledgement."""
        pool, transaction = self.pool, self.pool._new_transaction()

        def finish(t: AckTransaction) -> None:
            if envelope.settled:
                raise Closed("this message was acknowledged already, so nothing can be committed with it")
            pool._store.run(pool._consumer.transact(envelope.entry, self.number, t))
            envelope.settled = True

        transaction.finish = finish
        return transaction
