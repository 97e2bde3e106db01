"""Event streams: categories, streams, one stream as a timeline, one conversation, and the feed with its consumers."""

from __future__ import annotations

from typing import Any

from tailrace.console.api import events
from tailrace.console.data import Data
from tailrace.console.web import payload
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to
from tailrace.errors import BadInput

pages = Pages()
UP = (("Event streams", "/events"),)
PAGE_EVENTS = 20
MOST_FED = 5000
"""The most events of the feed that a search for one id reads at a time."""
CATEGORY_COLUMNS = (
    Column("category", "Category", lambda one: one[0]),
    Column("streams", "Streams", lambda one: one[1], True),
)
CONSUMER_COLUMNS = (
    Column("group", "Consumer", lambda one: one.group),
    Column("behind", "Behind", lambda one: one.behind, True),
    Column("dead", "Dead letters", lambda one: one.dead_letters, True),
    Column("errors", "Errors"),
)


@pages.page("/events")
async def categories(visit: Visit) -> Shown:
    """Show the categories and the consumers of the feed; with `?stream=`, show that stream."""
    if stream := visit.query.get("stream", "").strip():
        visit.path = {"stream": stream}
        return await show_stream(visit)
    found = await visit.pulse.keep(
        ("categories", visit.served.home.id), lambda: events.list_categories(visit), scan=True
    )
    rows = sorted(found.categories.items())
    table = Table(visit, "", "categories", CATEGORY_COLUMNS, rows, lambda row: row[0], "category")
    consumers = (await events.list_feed_consumers(visit)).consumers
    readers = Table(visit, "feed", "consumers of the feed", CONSUMER_COLUMNS, consumers, lambda one: one.group, "group")
    return Shown("events.html", "Event streams", {"table": table, "readers": readers}, section="events")


@pages.page("/events/categories/{category}")
async def show_category(visit: Visit) -> Shown:
    """Show the streams of one category."""
    name = visit.path["category"]
    query = events.StreamNamesQuery(category=name, after=visit.query.get("after") or None, limit=200)
    found = await events.list_event_streams(visit, query)
    columns = (Column("stream", "Stream", lambda one: one),)
    table = Table(visit, "", "streams", columns, found.streams, lambda one: one, "stream")
    more = None if found.next is None else visit.address(after=found.next)
    return Shown("category.html", name, {"table": table, "more": more}, UP, "events")


@pages.page("/events/streams/{stream}")
async def show_stream(visit: Visit) -> Shown:
    """Show one stream, newest event first: data, meta, and links to the events that caused them."""
    name = visit.path["stream"]
    tip = await events.describe_tip(visit)
    before = visit.whole("before", tip.version)
    query = events.EventQuery(start=0, stop=before, backwards=True, limit=PAGE_EVENTS)
    found = await events.read_events(visit, query)
    oldest = found.events[-1].index if found.events else 0
    about = {
        "stream": name, "tip": tip, "events": await visit.served.run(_all_told, found.events),
        "unfolds": await visit.served.run(_all_told, tip.unfolds),
        "older": visit.address(before=oldest) if oldest > tip.lowest else None,
        "newer": visit.address(before=None) if before < tip.version else None,
    }  # fmt: skip
    category = name.partition("-")[0]
    up = (*UP, (category, path_to("events", "categories", category)))
    return Shown("stream.html", name, about, up, "events")


def _all_told(found: list[events.ReadEvent]) -> list[dict[str, Any]]:
    return [_told(one) for one in found]


def _told(event: events.ReadEvent) -> dict[str, Any]:
    return {"event": event, "data": _listed(event.data), "meta": _listed(event.meta)}


def _listed(data: Data) -> str:
    return payload.whole(data, payload.view_of(data, None), payload.MOST_LISTED) if data else ""


@pages.page("/events/feed")
async def feed(visit: Visit) -> Shown:
    """Show the feed from a checkpoint on; with an id, scan it for the events that have the id, and say how far."""
    wanted = {name: visit.query.get(name, "").strip() for name in ("id", "category", "type", "from")}
    found, place, read = await _fed(visit, wanted)
    told = await visit.served.run(_all_fed, found)
    title = "The feed" if not wanted["id"] else f"Events with the id {wanted['id']}"
    about = {"asked": wanted, "told": told, "read": read, "next": visit.address(**{"from": place}) if place else None}
    return Shown("feed.html", title, about, UP, "events")


def _all_fed(found: list[events.FedEvent]) -> list[dict[str, Any]]:
    return [
        {**(_told(one.event) if one.event else {"event": None, "data": "", "meta": ""}), "fed": one} for one in found
    ]


async def _fed(visit: Visit, asked: dict[str, str]) -> tuple[list[events.FedEvent], str | None, int]:
    """Return events of the feed that fit, the checkpoint to continue from if there may be more, and how many events
    were read."""
    out: list[events.FedEvent] = []
    place, read = asked["from"] or "0", 0
    if len(asked["id"]) > 500:
        raise BadInput("an id has at most 500 characters")
    while read < MOST_FED and len(out) < PAGE_EVENTS:
        step = PAGE_EVENTS if not asked["id"] else 500
        query = events.FeedQuery(
            start=place, category=asked["category"] or None, type=asked["type"] or None, limit=step
        )
        page: Any = await events.read_feed(visit, query)
        read += len(page.events)
        fits = [one for one in page.events if not asked["id"] or _has(one, asked["id"])]
        out += fits[: PAGE_EVENTS - len(out)]
        if len(page.events) < step:
            return out, None, read
        place = page.next
        if not asked["id"]:
            break
    return out, place, read


def _has(one: events.FedEvent, id: str) -> bool:
    return one.event is not None and id in (one.event.id, one.event.correlation, one.event.causation)
