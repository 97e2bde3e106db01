"""Consumer groups: the list, one group, and moving it."""

from __future__ import annotations

from typing import Any

from tailrace.console.api import groups
from tailrace.console.api.topics import Reason, check_why
from tailrace.console.web.formats import count
from tailrace.console.web.page import REASON, Ask, Field, Pages, Preview, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to, whole
from tailrace.errors import BadInput

pages = Pages()
PATH = "/groups/{group}/{topic}"
COLUMNS = (
    Column("group", "Group", lambda one: one.group),
    Column("topic", "Topic", lambda one: one.topic),
    Column("members", "Members", lambda one: one.members, True),
    Column("lag", "Lag", lambda one: one.lag.records, True),
    Column("age", "Oldest unread", lambda one: one.lag.seconds, True),
    Column("line", "Lag, last minutes"),
)
PARTITION_COLUMNS = (
    Column("partition", "Partition", lambda one: one.partition),
    Column("position", "Position", lambda one: one.position, True),
    Column("end", "End", lambda one: one.end, True),
    Column("lag", "Lag", lambda one: one.lag.records, True),
    Column("age", "Oldest unread", lambda one: one.lag.seconds, True),
    Column("member", "Member", lambda one: one.member or ""),
    Column("", ""),
)


@pages.page("/groups")
async def list_groups(visit: Visit) -> Shown:
    """Show the list of groups."""
    look = await visit.pulse.look(visit)
    table = Table(visit, "", "groups", COLUMNS, look.groups, lambda one: f"{one.group} {one.topic}", "-lag")
    return Shown("groups.html", "Consumer groups", {"table": table}, section="groups")


@pages.page(PATH)
async def show_group(visit: Visit) -> Shown:
    """Show one group: members, positions, lag."""
    await visit.pulse.look(visit)
    group = await groups.describe_group(visit)
    table = Table(visit, "", "partitions", PARTITION_COLUMNS, group.partitions, _text, "partition")
    return Shown("group.html", group.group, {"group": group, "table": table}, (("Groups", "/groups"),), "groups")


def _text(one: groups.GroupPartition) -> str:
    return f"{one.partition} {one.member or ''}"


def _back(visit: Visit) -> str:
    return path_to("groups", visit.path["group"], visit.path["topic"])


@pages.action(PATH + "/reset")
async def reset(visit: Visit) -> Ask | Went:
    """Move a group, after a preview of the moves."""
    name, topic = visit.path["group"], visit.path["topic"]
    fields = (
        Field("to", "Move to", required=True, hint="earliest, latest, an offset, 2026-01-31T12:00:00Z, 15m, 2h, 7d."),
        REASON,
        Field("force", "Also under members that read at the moment", kind="check"),
    )
    ask = Ask(
        f"Reset {name}", "Move the group", _back(visit),
        (f"Moves the position of {name} in every partition of {topic}. One partition alone can be set from its row.",),
        fields, danger=True, previews=True, section="groups",
    )  # fmt: skip
    if not visit.form:
        return ask
    shown = "preview" in visit.form
    order = groups.GroupReset(visit.field("to"), visit.field("why"), "force" in visit.form, shown)
    done = await groups.reset_group(visit, order)
    if shown:
        ask.preview = _preview(done.moves)
        return ask
    return Went(_back(visit), f"The group {name} is at {visit.field('to')} now.")


def _preview(moves: list[groups.GroupMove]) -> Preview:
    again, skipped = sum(one.again for one in moves), sum(one.skipped for one in moves)
    rows = [
        [str(m.partition), f"{m.before:,}", f"{m.after:,}", count(m.again, "record"), count(m.skipped, "record")]
        for m in moves
    ]
    summary = f"{count(again, 'record')} will be read again, {count(skipped, 'record')} will not be read."
    return Preview(("Partition", "Now at", "Then at", "Read again", "Not read"), rows, summary)


@pages.action(PATH + "/positions/{partition}")
async def store(visit: Visit) -> Ask | Went:
    """Move the position of one partition forward."""
    name, partition = visit.path["group"], visit.number("partition")
    group = await groups.describe_group(visit)
    now: Any = next((one for one in group.partitions if one.partition == partition), None)
    if now is None:
        raise BadInput(f"{group.topic!r} has no partition {partition}")
    if not visit.form:
        now_at = f"Partition {partition} is at {now.position:,}, its end is {now.end:,}."
        say = (now_at, "Records before the new position are not read; only a reset goes back.")
        fields = (Field("offset", "Next offset to read", str(now.position), "number", required=True), REASON)
        title = f"Position of {name} in partition {partition}"
        return Ask(title, "Set the position", _back(visit), say, fields, True, section="groups")
    check_why(visit.field("why"))
    offset = whole(visit.field("offset"), "the offset", now.position, least=now.position, most=now.end)
    about = {"group": name, "topic": group.topic, "partition": partition, "offset": offset}
    async with visit.served.actions.noted(visit, "set position", visit.field("why"), **about):
        await groups.store_positions(visit, groups.GroupPositions({str(partition): offset}))
    return Went(_back(visit), f"Partition {partition} is at {offset:,} now.")


@pages.action(PATH + "/delete")
async def delete(visit: Visit) -> Ask | Went:
    """Delete a group and its positions."""
    if not visit.form:
        say = ("This forgets how far the group has read. The records stay; a new consumer of this name starts afresh.",)
        title = f"Delete group {visit.path['group']}"
        return Ask(title, "Delete the group", _back(visit), say, (REASON,), True, section="groups")
    await groups.delete_group(visit, Reason(visit.field("why")))
    return Went("/groups", f"The group {visit.path['group']} is deleted.")
