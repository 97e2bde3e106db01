"""Change streams: tables, the shards of one as a tree, and its newest changes."""

from __future__ import annotations

from typing import Any

from tailrace.console.api import streams
from tailrace.console.api.streams import StreamShard
from tailrace.console.web import payload
from tailrace.console.web.formats import visible
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit
from tailrace.streams.document import encode

pages = Pages()
PAGE_CHANGES = 20
MOST_SHARDS = 500
"""Shards of the tree that a page shows, the open ones and their forebears first."""
COLUMNS = (
    Column("table", "Table", lambda one: one.table),
    Column("key", "Key", lambda one: one.hash_key.name),
    Column("stream", "Changes carry", lambda one: ", ".join(one.stream)),
)


@pages.page("/streams")
async def list_tables(visit: Visit) -> Shown:
    """The tables."""
    found = (await streams.list_tables(visit)).tables
    table = Table(visit, "", "tables", COLUMNS, found, lambda one: one.table, "table")
    return Shown("tables.html", "Change streams", {"table": table}, section="streams")


def descent(shards: list[StreamShard]) -> list[tuple[int, StreamShard]]:
    """Each shard before its children, and how deep it is: one step further for each split above it."""
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
    """One table: its key, its shards, and some changes."""
    found = await streams.describe_table(visit)
    start = visit.query.get("from", "").strip() or "trim_horizon"
    page: dict[str, Any] = {"changes": [], "token": ""}
    if found.about.stream:
        page = await visit.pulse.keep(("changes", found.about.table, start), lambda: _changes(visit, start))
    changes = [(one, visible(payload.indented(encode(one).decode()))) for one in page["changes"]]
    shards = descent(found.shards)
    about = {
        "found": found, "shards": shards[:MOST_SHARDS], "left_out": max(0, len(shards) - MOST_SHARDS),
        "changes": changes, "start": start, "open": sum(one.open for one in found.shards),
        "next": visit.address(**{"from": page["token"]}) if len(changes) == PAGE_CHANGES else None,
    }  # fmt: skip
    return Shown("table.html", found.about.table, about, (("Change streams", "/streams"),), "streams")


def _read(visit: Visit, start: str) -> dict[str, Any]:
    stream: Any = visit.served.home.engine().stream(visit.path["table"], streams._place(start))
    try:
        return {"changes": streams._some(stream, PAGE_CHANGES), "token": streams._token(stream)}
    finally:
        stream.close()


async def _changes(visit: Visit, start: str) -> dict[str, Any]:
    return await visit.served.run(_read, visit, start)
