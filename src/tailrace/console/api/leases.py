"""Leases over HTTP: a client takes messages of a queue for some seconds, then acknowledges, retries or gives up each.

The queue hands a message out again when its lease runs out or the server that gave the lease dies.  So handling a
message twice must do no harm, as with every consumer.  Only the server that gave a lease knows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from tailrace.console.api.queues import coded
from tailrace.console.data import Data, data_of
from tailrace.console.limits import check_wait
from tailrace.console.operation import Call, Operations
from tailrace.console.problems import problem_of
from tailrace.errors import BadInput, Fenced, TimedOut
from tailrace.queue.lending import LONGEST_LOAN, Lender, Loan, unknown

operations = Operations()
SETTLE_SECONDS = 30.0
"""How long a request that ends a lease waits until that is stored."""
MOST_LEASES = 1000
PATH = "/queues/{queue}/leases"


class Take(msgspec.Struct, forbid_unknown_fields=True):
    """How many messages to take at most, for how many seconds, and how many seconds to wait for the first."""

    most: int = 1
    seconds: float = 60.0
    wait: float = 5.0


class Lease(msgspec.Struct, omit_defaults=True):
    """A message that the client holds for `seconds`.  A message that was pushed as JSON is in `json`, any other in
    `value`.  `attempt` counts from 1; `pushed` is in milliseconds since 1970."""

    lease: str
    shard: int
    offset: int
    attempt: int
    seconds: float
    pushed: int
    key: Data = None
    value: Data = None
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Leases(msgspec.Struct):
    """The messages that the client has taken; none if none came in time."""

    leases: list[Lease]


class Settled(msgspec.Struct):
    """How a lease has ended: acked, retried or dead."""

    lease: str
    outcome: str


class Acks(msgspec.Struct, forbid_unknown_fields=True):
    """Leases whose messages the client has handled."""

    leases: list[str]


class FailedAck(msgspec.Struct):
    """A lease that could not be acknowledged, and why."""

    lease: str
    detail: str


class Acked(msgspec.Struct):
    """The leases whose acknowledgement is durable, and those whose acknowledgement failed."""

    acked: list[str]
    failed: list[FailedAck]


class RetryOrder(msgspec.Struct, forbid_unknown_fields=True):
    """In how many seconds to hand a message out again (default: the queue's backoff), and why."""

    after: float | None = None
    reason: str = ""


class DeadOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Why the client gives a message up."""

    reason: str


class Extension(msgspec.Struct, forbid_unknown_fields=True):
    """How many seconds a lease lasts from now."""

    seconds: float = 60.0


@asynccontextmanager
async def _news(lender: Lender) -> AsyncIterator[asyncio.Event]:
    """Yields an event that the lender sets when there may be a message, or when the end of a lease may be stored."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(event.set)

    stop = lender.listen(tell)
    try:
        yield event
    finally:
        stop()


@operations.post(PATH, answer=Leases, body=Take)
async def take_messages(call: Call, body: Take) -> Leases:
    """Take messages: no other consumer gets them until their lease ends.  Messages of one key come one at a time."""
    if not 1 <= body.most <= MOST_LEASES:
        raise BadInput(f"most is a number from 1 to {MOST_LEASES}, not {body.most}")
    check_wait(body.wait, call.served.limits)
    if not 0 < body.seconds <= LONGEST_LOAN:
        raise BadInput(f"a lease is for 1 to {LONGEST_LOAN:,.0f} seconds, not {body.seconds}")
    until = time.monotonic() + body.wait
    with call.served.streams.one(call.client):
        while True:
            lender = await call.served.lender(call.path["queue"])
            async with _news(lender) as event:
                while lender.running:
                    event.clear()
                    # A client that has gone would hold the messages until they expire.
                    if await call.request.is_disconnected():
                        return Leases([])
                    if taken := lender.take(body.most, body.seconds):
                        return Leases([_lease(loan) for loan in taken])
                    if (left := until - time.monotonic()) <= 0:
                        return Leases([])
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await event.wait()


def _lease(loan: Loan) -> Lease:
    entry = loan.entry
    made = Lease(loan.id, entry.partition, entry.offset, loan.attempt, loan.seconds, entry.inserted, data_of(entry.key))
    if coded(entry.attributes) and entry.value and _is_json(entry.value):
        made.json = msgspec.Raw(entry.value)
    else:
        made.value = data_of(entry.value)
    return made


def _is_json(value: bytes) -> bool:
    """Whether a message can stand in an answer as JSON: a Python program may have pushed it with a codec of its own."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


async def _settle(call: Call, end: Callable[[Lender], None], id: str) -> Settled:
    """End a lease, and wait until an acknowledgement or a dead letter is stored; a retry is not waited for.

    Raises `Fenced` for a lease that this server does not know, and `TimedOut` after SETTLE_SECONDS."""
    lender = call.served.lender_if_any(call.path["queue"])
    if lender is None:
        await call.served.run(call.served.home.queue(call.path["queue"]).topic)
        raise unknown(id)
    async with _news(lender) as event:
        end(lender)
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            event.clear()
            if (how := lender.settled(id)) is not None:
                return Settled(id, how)
            if (left := until - time.monotonic()) <= 0:
                raise TimedOut("the storage does not answer; send this again, until it is acknowledged or refused")
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, 1.0)):
                    await event.wait()


@operations.post(PATH + "/{lease}/ack", answer=Settled)
async def ack_message(call: Call) -> Settled:
    """Acknowledge a message.  The acknowledgement is durable when the server answers; a repeated request gets the same
    answer."""
    id = call.path["lease"]
    return await _settle(call, lambda lender: lender.ack(id), id)


@operations.post("/queues/{queue}/acks", answer=Acked, body=Acks)
async def ack_messages(call: Call, body: Acks) -> Acked:
    """Acknowledge many messages.  Each acknowledgement succeeds or fails by itself."""
    if len(body.leases) > MOST_LEASES:
        raise BadInput(f"at most {MOST_LEASES} leases at a time, not {len(body.leases)}")

    async def one(id: str) -> Settled | FailedAck:
        try:
            return await _settle(call, lambda lender: lender.ack(id), id)
        except (Fenced, TimedOut) as error:
            return FailedAck(id, problem_of(error).detail)

    ended = await asyncio.gather(*(one(id) for id in dict.fromkeys(body.leases)))
    acked = [found.lease for found in ended if isinstance(found, Settled)]
    return Acked(acked, [found for found in ended if isinstance(found, FailedAck)])


@operations.post(PATH + "/{lease}/retry", answer=Settled, body=RetryOrder)
async def retry_message(call: Call, body: RetryOrder) -> Settled:
    """Give a message back, so that the queue hands it out again.  It counts as a failed attempt."""
    if body.after is not None and not 0 <= body.after <= LONGEST_LOAN:
        raise BadInput(f"after is a number of seconds from 0 to {LONGEST_LOAN:,.0f}, not {body.after}")
    id = call.path["lease"]
    return await _settle(call, lambda lender: lender.retry(id, body.after, body.reason), id)


@operations.post(PATH + "/{lease}/dead", answer=Settled, body=DeadOrder)
async def give_message_up(call: Call, body: DeadOrder) -> Settled:
    """Give a message up, so that the queue puts it with the dead letters."""
    id = call.path["lease"]
    return await _settle(call, lambda lender: lender.dead(id, body.reason), id)


@operations.post(PATH + "/{lease}/extend", answer=Lease, body=Extension)
async def extend_lease(call: Call, body: Extension) -> Lease:
    """Extend a lease while the client still handles its message."""
    lender = call.served.lender_if_any(call.path["queue"])
    if lender is None:
        await call.served.run(call.served.home.queue(call.path["queue"]).topic)
        raise unknown(call.path["lease"])
    return _lease(lender.extend(call.path["lease"], body.seconds))
