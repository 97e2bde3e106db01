"""Change streams over HTTP: tables, the shards and groups of their streams, and their changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from starlette.responses import Response

from tailrace.console.api.topics import check_limit
from tailrace.console.cursor import LARGEST, position_of
from tailrace.console.operation import EVENTS, JSON, NDJSON, Call, Operations
from tailrace.console.streaming import BEAT_SECONDS, Batch, Item, streamed
from tailrace.errors import BadInput, BadToken, UnknownTable
from tailrace.home import Home
from tailrace.streams.description import TableDescription
from tailrace.streams.document import document, encode
from tailrace.streams.engine import Engine
from tailrace.streams.stream import Start

operations = Operations()
PAGE_CHANGES, MOST_CHANGES = 100, 1000
"""How many changes a page has unless the client says, and the most that it has."""


class TableKey(msgspec.Struct):
    """A key attribute of a table; its type is text, number or bytes."""

    name: str
    type: str


class TableSummary(msgspec.Struct):
    """A table and its key.  `stream` says what its changes carry: keys, new, old; empty if it has no change stream."""

    table: str
    hash_key: TableKey
    range_key: TableKey | None
    stream: list[str]


class Tables(msgspec.Struct):
    """The tables of a home."""

    tables: list[TableSummary]


class StreamShard(msgspec.Struct):
    """A shard of a change stream; `open` is false once the shard has ended."""

    id: str
    parent: str | None
    open: bool


class TableStream(msgspec.Struct):
    """A table and the shards of its change stream."""

    about: TableSummary
    stream_id: str | None
    shards: list[StreamShard]


class StreamGroupNames(msgspec.Struct):
    """The groups of processes that share the shards of a table's stream."""

    groups: list[str]


class StreamGroupQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to count how far the group is behind.  To count, the server reads up to 10,000 changes of each shard."""

    count: bool = True


class StreamGroupShard(msgspec.Struct):
    """The state of a group in one shard: the member that reads the shard, and how many changes the group has handled
    and has yet to handle.  `progress_age` is how many seconds ago the group last made progress there or was found to be
    at the shard's end."""

    shard: str
    member: str | None
    handled: int
    ended: bool
    progress_age: float | None
    error: str
    behind: int
    behind_seconds: float


class StreamGroupHealth(msgspec.Struct):
    """The state of a group: the names of its members, how many dead letters it has, and its state in each shard."""

    group: str
    members: list[str]
    dead_letters: int
    progress_age: float
    shards: list[StreamGroupShard]


class ChangeQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """Where to start (`from`): trim_horizon, latest, a time, how long ago, or a token of an earlier answer.  As JSON
    the answer has 100 changes unless `limit` says how many, as a stream all of them."""

    start: str = "trim_horizon"
    limit: int | None = None


class ChangePage(msgspec.Struct):
    """A page of changes: key, new, old and meta of each; `token` is the `from` of the next page."""

    changes: list[dict[str, Any]]
    token: str


def _summary(found: TableDescription) -> TableSummary:
    range_key = None if found.range_key is None else TableKey(*found.range_key)
    return TableSummary(found.name, TableKey(*found.hash_key), range_key, list(found.stream))


def _tables(engine: Engine) -> list[TableSummary]:
    found = []
    for name in engine.tables():
        with suppress(UnknownTable):  # dropped since it was listed
            found.append(_summary(engine.describe(name, shards=False)))
    return found


@operations.get("/streams", answer=Tables)
async def list_tables(call: Call) -> Tables:
    """List the tables of models, and what their changes carry."""
    return Tables(await call.served.run(lambda: _tables(call.served.home.engine())))


@operations.get("/streams/{table}", answer=TableStream)
async def describe_table(call: Call) -> TableStream:
    """Describe a table: its key, what its changes carry, and the shards of its stream."""
    found = await call.served.run(lambda: call.served.home.engine().describe(call.path["table"]))
    shards = [StreamShard(shard.id, shard.parent, shard.last is None) for shard in found.shards]
    return TableStream(_summary(found), found.stream_id, shards)


@operations.get("/streams/{table}/groups", answer=StreamGroupNames)
async def list_stream_groups(call: Call) -> StreamGroupNames:
    """List the groups that share a table's stream."""
    return StreamGroupNames(await call.served.run(lambda: call.served.home.engine().groups(call.path["table"])))


@operations.get("/streams/{table}/groups/{group}", answer=StreamGroupHealth, query=StreamGroupQuery)
async def describe_stream_group(call: Call, query: StreamGroupQuery) -> StreamGroupHealth:
    """Describe a group of a table's stream: its members, and its state in each shard."""
    return await call.served.run(group_health, call.served.home, call.path["table"], call.path["group"], query.count)


def group_health(home: Home, table: str, group: str, count: bool) -> StreamGroupHealth:
    """Return the state of a group of a table's stream; with `count`, read changes to count how far it is behind."""
    now = home.engine().group(table, group).status(count=count)
    shards = [
        StreamGroupShard(
            one.shard, one.member, one.handled, one.ended, one.progress_age, one.error, one.behind_records,
            one.behind_seconds,
        )
        for one in now.shards
    ]  # fmt: skip
    return StreamGroupHealth(group, list(now.members), now.dead_letters, now.progress_age, shards)


def _place(text: str) -> Start:
    if text in ("trim_horizon", "latest"):
        return text
    if text.lstrip().startswith("{"):
        try:
            token: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadToken(f"the token is no JSON: {error}; give one that an earlier answer had") from None
        return token
    place = position_of(text)
    if not isinstance(place, datetime):
        raise BadInput("a change stream is read from trim_horizon, latest, a time, how long ago (2h), or a token")
    return place


@operations.get("/streams/{table}/changes", answer=ChangePage, query=ChangeQuery, gives=(NDJSON, EVENTS))
async def read_changes(call: Call, query: ChangeQuery) -> Response:
    """Read the changes of a table's items, from a place on.  As server-sent events, the answer continues with new
    changes."""
    media = call.chosen(JSON, NDJSON, EVENTS)
    if query.limit is not None:
        check_limit(query.limit, MOST_CHANGES if media == JSON else LARGEST)
    start = query.start
    if media == EVENTS:
        start = call.request.headers.get("last-event-id") or start
    table = call.path["table"]
    stream = await call.served.run(lambda: call.served.home.engine().stream(table, _place(start)))
    if media != JSON:
        return streamed(call, _items(call, stream, media == EVENTS, query.limit), media)
    try:
        changes = await call.served.run(_some, stream, PAGE_CHANGES if query.limit is None else query.limit)
        body = encode({"changes": changes, "token": _token(stream)})
    finally:
        await call.served.run(stream.close)
    return Response(body, media_type=JSON)


def _some(stream: Any, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < limit and (record := next(stream)) is not None:
        found.append(document(record))
    return found


def _token(stream: Any) -> str:
    return json.dumps(stream.token, separators=(",", ":"))


async def _items(call: Call, stream: Any, going_on: bool, left: int | None) -> AsyncGenerator[Batch]:
    """Yields batches of changes as they come.  A token is behind a whole batch, so only its last change carries it."""
    silent = 0.0
    try:
        while True:
            found = await call.served.run(_some, stream, MOST_CHANGES if left is None else min(left, MOST_CHANGES))
            if found:
                items = [Item("record", msgspec.Raw(encode(one))) for one in found]
                items[-1] = Item("record", items[-1].data, await call.served.run(_token, stream))
                silent = 0.0
                yield Batch(items)
                left = None if left is None else left - len(items)
                if left == 0:
                    return
            elif not going_on:
                return
            else:
                pause = min(call.served.limits.poll_seconds, 1.0)
                await asyncio.sleep(pause)
                silent += pause
                if silent >= BEAT_SECONDS:
                    silent = 0.0
                    yield Batch([])
    finally:
        await call.served.run(stream.close)
