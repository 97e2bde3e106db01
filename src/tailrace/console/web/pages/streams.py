"""Change streams: the list of tables; one table's shards as a tree, its groups of consumers, and its changes."""

from __future__ import annotations

from typing import Any

from tailrace.console.api import streams
from tailrace.console.api.streams import StreamGroupHealth, StreamShard
from tailrace.console.web import payload
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to
from tailrace.streams.document import encode

pages = Pages()
PAGE_CHANGES = 20
MOST_SHARDS = 500
"""The most shards of the tree that a page shows."""
MOST_GROUPS = 20
"""The most groups whose state the page of a table shows."""
MOST_COUNTED = 20
"""The most open shards of a group for which its page counts how far behind the group is: to count, it reads changes."""
COLUMNS = (
    Column("table", "Table", lambda one: one.table),
    Column("key", "Key", lambda one: one.hash_key.name),
    Column("stream", "Changes carry", lambda one: ", ".join(one.stream)),
)

SHARD_COLUMNS = (
    Column("shard", "Shard", lambda one: one.shard),
    Column("member", "Member", lambda one: one.member or ""),
    Column("handled", "Handled", lambda one: one.handled, True),
    Column("behind", "Behind", lambda one: one.behind, True),
    Column("age", "Oldest change", lambda one: one.behind_seconds, True),
    Column("progress", "Last progress", lambda one: one.progress_age or 0, True),
    Column("error", "Error", lambda one: one.error),
)


@pages.page("/streams")
async def list_tables(visit: Visit) -> Shown:
    """Show the list of tables."""
    found = (await streams.list_tables(visit)).tables
    table = Table(visit, "", "tables", COLUMNS, found, lambda one: one.table, "table")
    return Shown("tables.html", "Change streams", {"table": table}, section="streams")


def descent(shards: list[StreamShard]) -> list[tuple[int, StreamShard]]:
    """Return each shard before its children, with its depth: the number of splits above it, at most 6."""
    known = {shard.id for shard in shards}
    children: dict[str | None, list[StreamShard]] = {}
    for shard in shards:
        children.setdefault(shard.parent if shard.parent in known else None, []).append(shard)
    left = [(0, shard) for shard in reversed(children.get(None, []))]
    out = []
    while left:
        depth, shard = left.pop()
        out.append((min(depth, 6), shard))
        below = children.get(shard.id, [])
        left += [(depth + (len(below) > 1), child) for child in reversed(below)]
    return out


@pages.page("/streams/{table}")
async def show_table(visit: Visit) -> Shown:
    """Show one table: its key, its shards, its groups, and some changes."""
    found = await streams.describe_table(visit)
    start = visit.query.get("from", "").strip() or "trim_horizon"
    page: dict[str, Any] = {"changes": [], "token": ""}
    if found.about.stream:
        page = await visit.pulse.keep(("changes", found.about.table, start), lambda: _changes(visit, start))
    changes = await visit.served.run(_shown, page["changes"])
    shards = descent(found.shards)
    names = (await streams.list_stream_groups(visit)).groups if found.about.stream else []
    groups = [await _health(visit, name, count=False) for name in names[:MOST_GROUPS]]
    about = {
        "found": found, "shards": shards[:MOST_SHARDS], "left_out": max(0, len(shards) - MOST_SHARDS),
        "changes": changes, "start": start, "open": sum(one.open for one in found.shards),
        "groups": groups, "more_groups": len(names) - len(groups),
        "next": visit.address(**{"from": page["token"]}) if len(changes) == PAGE_CHANGES else None,
    }  # fmt: skip
    return Shown("table.html", found.about.table, about, (("Change streams", "/streams"),), "streams")


@pages.page("/streams/{table}/groups/{group}")
async def show_group(visit: Visit) -> Shown:
    """Show one group of consumers of a table's stream: its members, and its state in each shard."""
    table, group = visit.path["table"], visit.path["group"]
    found = await _health(visit, group, count=False)
    if counted := sum(not one.ended for one in found.shards) <= MOST_COUNTED:
        found = await _health(visit, group, count=True)
    shards = Table(
        visit, "", "shards", SHARD_COLUMNS, found.shards, lambda one: f"{one.shard} {one.member} {one.error}", "shard"
    )
    about = {
        "group": found, "table_name": table, "shards": shards, "counted": counted,
        "behind": sum(one.behind for one in found.shards),
    }  # fmt: skip
    path = (("Change streams", "/streams"), (table, path_to("streams", table)))
    return Shown("stream_group.html", group, about, path, "streams")


async def _health(visit: Visit, group: str, *, count: bool) -> StreamGroupHealth:
    table = visit.path["table"]

    async def look() -> StreamGroupHealth:
        return await visit.served.run(streams.group_health, visit.served.home, table, group, count)

    return await visit.pulse.keep(("stream group", table, group, str(count)), look)


def _read(visit: Visit, start: str) -> dict[str, Any]:
    stream: Any = visit.served.home.engine().stream(visit.path["table"], streams._place(start))
    try:
        return {"changes": streams._some(stream, PAGE_CHANGES), "token": streams._token(stream)}
    finally:
        stream.close()


def _shown(changes: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    return [(one, payload.whole(encode(one).decode(), "json", payload.MOST_LISTED)) for one in changes]


async def _changes(visit: Visit, start: str) -> dict[str, Any]:
    return await visit.served.run(_read, visit, start)
