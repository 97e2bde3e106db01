"""Dead letters of handlers over HTTP: events of the feed and changes of tables whose handler failed for good.

tailrace keeps a dead letter, and never hands it to the handler again.  An operator deals with it and then settles it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.console.api.topics import Reason, check_why
from tailrace.console.data import data_of
from tailrace.console.operation import Call, Operations
from tailrace.coordination.dead_letters import DeadLetter
from tailrace.errors import NotThere
from tailrace.streams.document import encode, plain

operations = Operations()
OF_FEED, OF_TABLE = "/events/consumers/{group}/dead", "/streams/{table}/groups/{group}/dead"


class HandlerLetter(msgspec.Struct):
    """An event or a change whose handler failed for good, with the error; `at` is in milliseconds since 1970.  `unit`
    is the shard, or the partition of the feed.  `number` is text, since JavaScript rounds numbers of its size.
    `left_out` names the parts of the record that were too large to be kept."""

    number: str
    at: int
    unit: str
    id: str
    error: str
    record: Any
    left_out: list[str]


class HandlerLetters(msgspec.Struct):
    """The dead letters of a group that no operator has settled yet, oldest first."""

    dead: list[HandlerLetter]


class Settling(msgspec.Struct):
    """The number of a dead letter that was removed, since an operator has dealt with it."""

    settled: str


def _shown(letter: DeadLetter) -> HandlerLetter:
    kept = letter.record.items()
    record = {name: data_of(value) if isinstance(value, bytes) else plain(value) for name, value in kept}
    body = msgspec.Raw(encode(record))  # as JSON text, which keeps all digits of the numbers
    return HandlerLetter(
        str(letter.number), letter.at, letter.unit, letter.id, letter.error, body, list(letter.left_out)
    )  # fmt: skip


def _of_feed(call: Call) -> list[DeadLetter]:
    checkpoints, group = call.served.home.events().checkpoints, call.path["group"]
    if not (letters := checkpoints.dead_letters(group)):  # a deleted group keeps its dead letters
        checkpoints.show(group)
    return list(letters)


def _of_table(call: Call) -> list[DeadLetter]:
    group = call.served.home.engine().group(call.path["table"], call.path["group"])
    if not (letters := group.dead_letters()):
        group.status(count=False)
    return letters


@operations.get(OF_FEED, answer=HandlerLetters)
async def list_feed_letters(call: Call) -> HandlerLetters:
    """List the dead letters of a group of the feed: events whose handler failed for good."""
    return HandlerLetters([_shown(one) for one in await call.served.run(_of_feed, call)])


@operations.get(OF_TABLE, answer=HandlerLetters)
async def list_stream_letters(call: Call) -> HandlerLetters:
    """List the dead letters of a group of a table's stream: changes whose handler failed for good."""
    return HandlerLetters([_shown(one) for one in await call.served.run(_of_table, call)])


async def _settle(call: Call, body: Reason, remove: Callable[[int], None], **of: str) -> Settling:
    number = call.path["number"]
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise NotThere(f"there is no dead letter {number[:40]!r}; they are listed with their numbers")
    async with call.served.actions.noted(call, "settle dead letter", check_why(body.why), **of, number=number):
        await call.served.run(remove, int(number))
    return Settling(number)


@operations.post(OF_FEED + "/{number}/settle", answer=Settling, body=Reason)
async def settle_feed_letter(call: Call, body: Reason) -> Settling:
    """Remove a dead letter of a group of the feed, since an operator has dealt with it."""
    group, checkpoints = call.path["group"], call.served.home.events().checkpoints
    return await _settle(call, body, lambda number: checkpoints.settle(group, number), consumer=group)


@operations.post(OF_TABLE + "/{number}/settle", answer=Settling, body=Reason)
async def settle_stream_letter(call: Call, body: Reason) -> Settling:
    """Remove a dead letter of a group of a table's stream, since an operator has dealt with it."""
    table, group = call.path["table"], call.path["group"]

    def remove(number: int) -> None:
        call.served.home.engine().group(table, group).settle(number)

    return await _settle(call, body, remove, table=table, group=group)
