"""Consumer groups over HTTP: their lag, reading from stored positions without membership, resets and deletion."""

from __future__ import annotations

import time
from contextlib import suppress

import msgspec
from starlette.responses import Response

from tailrace.console.api.records import PAGE_BYTES, PAGE_RECORDS, RecordPage
from tailrace.console.api.topics import Reason, check_limit, check_why
from tailrace.console.cursor import by_partition, position_of
from tailrace.console.limits import check_wait, while_connected
from tailrace.console.operation import JSON, Call, Operations
from tailrace.console.reading import wait_for_page
from tailrace.coordination.names import check_name
from tailrace.errors import NotThere, OutOfRange
from tailrace.home import Home
from tailrace.log.groups import group as steps
from tailrace.log.groups import stored_positions
from tailrace.log.groups.group import Group
from tailrace.log.groups.lag import GroupState, describe
from tailrace.log.read.reader import Reader
from tailrace.log.topic import Topic

operations = Operations()
PATH = "/groups/{group}/topics/{topic}"


class GroupLag(msgspec.Struct):
    """The number of records that the group has yet to read, and the age in seconds of the oldest of them."""

    records: int
    seconds: float


class GroupSummary(msgspec.Struct):
    """A group in a list."""

    group: str
    topic: str
    members: int
    lag: GroupLag


class GroupList(msgspec.Struct):
    """The groups of a home, or of a topic."""

    groups: list[GroupSummary]


class GroupListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which groups to list: all, or those of a topic."""

    topic: str | None = None


class GroupMember(msgspec.Struct):
    """A process that reads for a group."""

    name: str
    host: str
    pid: int
    partitions: list[int]


class GroupPartition(msgspec.Struct):
    """A group's position and lag in a partition, and the member that reads it, if any."""

    partition: int
    position: int
    end: int
    lag: GroupLag
    member: str | None


class GroupDescription(msgspec.Struct):
    """A group: its lag, its members, and its position in each partition."""

    group: str
    topic: str
    lag: GroupLag
    members: list[GroupMember]
    partitions: list[GroupPartition]


class NewGroup(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """Where a new group begins: earliest, latest, an offset, a time, or how long ago."""

    start: str = "earliest"


class GroupReset(msgspec.Struct, forbid_unknown_fields=True):
    """Where to move a group, and why.  With `preview` the server only says what would move.  With `force` the server
    moves the group also while members read for it."""

    to: str
    why: str = ""
    force: bool = False
    preview: bool = False


class GroupMove(msgspec.Struct):
    """How a reset moves a group in one partition: the group reads `again` records once more, and does not read
    `skipped` records."""

    partition: int
    before: int
    after: int
    again: int
    skipped: int


class GroupMoves(msgspec.Struct):
    """The moves of a reset; `done` is false for a preview."""

    moves: list[GroupMove]
    done: bool


class GroupPositions(msgspec.Struct, forbid_unknown_fields=True):
    """The next offset to read, by partition, as in "0": 17."""

    positions: dict[str, int]


class GroupReadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many records to read, and how many seconds the server waits for a record if there is none yet."""

    limit: int = PAGE_RECORDS
    wait: float = 0.0


def _group(topic: Topic, name: str) -> Group:
    return Group(name, topic.log, topic.partitions)


async def _named(call: Call) -> tuple[Topic, Group]:
    topic = await call.served.topic(call.path["topic"])
    return topic, _group(topic, call.path["group"])


def _lag(records: int, seconds: float) -> GroupLag:
    return GroupLag(records, round(seconds, 3))


def _summaries(home: Home, topic: str | None) -> list[GroupSummary]:
    found = []
    for name, of, *_ in home.store.run(steps.groups()):
        with suppress(NotThere):  # deleted since it was listed
            if topic in (None, of):
                state = home.store.run(describe(_group(home.topic(of), name), time.time()))
                found.append(GroupSummary(name, of, len(state.members), _lag(state.lag.records, state.lag.seconds)))
    return found


@operations.get("/groups", answer=GroupList, query=GroupListQuery)
async def list_groups(call: Call, query: GroupListQuery) -> GroupList:
    """List consumer groups, with the number of their members and their lag."""
    if query.topic is not None:
        await call.served.topic(query.topic)
    return GroupList(await call.served.run(_summaries, call.served.home, query.topic))


def _described(state: GroupState) -> GroupDescription:
    names = {member.number: member.name for member in state.members}
    return GroupDescription(
        state.group,
        state.topic,
        _lag(state.lag.records, state.lag.seconds),
        [GroupMember(m.name, m.host, m.pid, list(m.partitions)) for m in state.members],
        [
            GroupPartition(p.partition, p.position, p.end, _lag(p.lag.records, p.lag.seconds), names.get(p.owner))
            for p in state.partitions
        ],
    )


@operations.get(PATH, answer=GroupDescription)
async def describe_group(call: Call) -> GroupDescription:
    """Describe a group: its members, and the position and lag of each partition."""
    topic, group = await _named(call)
    return _described(await call.served.run(topic.store.run, describe(group, time.time())))


@operations.post(PATH, answer=GroupDescription, body=NewGroup, status=201)
async def create_group(call: Call, body: NewGroup) -> GroupDescription:
    """Create a group that begins at a position.  A group that exists stays as it is."""
    topic, group = await _named(call)
    check_name("group", group.name)
    start = position_of(body.start)
    async with call.served.actions.noted(call, "create group", group=group.name, topic=topic.name, start=body.start):
        await call.served.run(topic.store.run, steps.make(group, start))
    return _described(await call.served.run(topic.store.run, describe(group, time.time())))


@operations.get(f"{PATH}/records", answer=RecordPage, query=GroupReadQuery, statuses=(206,))
async def read_for_group(call: Call, query: GroupReadQuery) -> Response:
    """Read from a group's positions without becoming a member.  The positions stay where they are until the client
    stores them."""
    limits = call.served.limits
    limit = check_limit(query.limit, limits.page_records)
    check_wait(query.wait, limits)
    topic, group = await _named(call)
    positions = await call.served.run(topic.store.run, stored_positions.positions(group))
    reader = Reader(topic.log, positions, from_floor=True)
    with call.served.streams.one(call.client):
        waiting = wait_for_page(call.served, topic, reader, limit, PAGE_BYTES, query.wait)
        page = await while_connected(call.request, waiting)
    body = msgspec.json.encode(RecordPage(page.records(topic.name), page.cursor, page.losses))
    return Response(body, 206 if page.lost else 200, media_type=JSON)


@operations.post(f"{PATH}/positions", answer=GroupDescription, body=GroupPositions)
async def store_positions(call: Call, body: GroupPositions) -> GroupDescription:
    """Store a group's positions.  They only move forward; the server refuses to move a partition that a living member
    reads."""
    topic, group = await _named(call)
    wanted = by_partition("positions", body.positions)
    await call.served.run(topic.store.run, stored_positions.store(group, wanted))
    return _described(await call.served.run(topic.store.run, describe(group, time.time())))


@operations.post(f"{PATH}/reset", answer=GroupMoves, body=GroupReset)
async def reset_group(call: Call, body: GroupReset) -> GroupMoves:
    """Move a group to another position in every partition, or preview the moves."""
    topic, group = await _named(call)
    position, run = position_of(body.to), topic.store.run
    before = await call.served.run(run, stored_positions.positions(group))
    after = await call.served.run(run, steps.offsets(topic.log, before, position))
    ends = await call.served.run(topic.ends)
    if (beyond := next((q for q in before if after[q] > ends[q][1]), None)) is not None:
        raise OutOfRange(
            f"offset {after[beyond]} of partition {beyond} of {topic.name!r} is beyond its end, {ends[beyond][1]}"
        )
    if not body.preview:
        why = check_why(body.why)
        async with call.served.actions.noted(call, "reset group", why, group=group.name, topic=topic.name, to=body.to):
            after = await call.served.run(run, steps.reset(group, position, force=body.force))
    moves = [GroupMove(q, at, after[q], max(0, at - after[q]), max(0, after[q] - at)) for q, at in before.items()]
    return GroupMoves(moves, not body.preview)


@operations.delete(PATH, body=Reason)
async def delete_group(call: Call, body: Reason) -> None:
    """Delete a group and its positions; the records stay."""
    topic, group = await _named(call)
    why = check_why(body.why)
    async with call.served.actions.noted(call, "delete group", why, group=group.name, topic=topic.name):
        await call.served.run(topic.store.run, steps.delete(group))
