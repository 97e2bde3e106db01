"""The live tail of a topic: records as they come, and a count of those that came too fast to be shown.  After a pause
the tail continues where it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from tailrace.console.cursor import cursor_of, is_cursor, start_at
from tailrace.console.reading import ReadRecord, follow
from tailrace.console.streaming import BEAT_SECONDS, Batch, Item
from tailrace.console.web import templates
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.pages.scan import Fits, wanted
from tailrace.console.web.visit import Visit, path_to, whole

pages = Pages()
MOST_SHOWN = 100
"""The most records that the server sends to a page at once: the last ones of a burst."""
MOST_BEHIND, MOST_SEARCHED = 1000, 100_000
"""How many records of a partition a page may be behind, and a page that searches; a page further behind skips to the
newest ones."""
PAUSE = 0.25
"""Seconds between two sends."""


async def _rows(visit: Visit) -> AsyncGenerator[Batch, None]:
    """Yields what the event stream sends: rendered rows, how many were left out, and the cursor behind them."""
    topic = await visit.served.topic(visit.path["topic"])
    last = visit.request.headers.get("last-event-id", "")
    start = last if is_cursor(last) else visit.query.get("from", "") or "latest"
    partition = whole(visit.query.get("partition", ""), "partition", -1)
    chosen = None if partition < 0 else partition
    positions = await visit.served.run(topic.store.run, start_at(topic, chosen, start))
    fits = wanted(visit.query.get("q", "").strip(), "")
    yield Batch([Item("rows", {"html": "", "dropped": "0"}, cursor_of(positions))])
    most = MOST_BEHIND if fits is None else MOST_SEARCHED
    async for page in follow(visit.served, topic, positions, every=chosen is None, beat=BEAT_SECONDS, newest=most):
        records: list[ReadRecord] = await visit.served.run(page.records, topic.name)
        found = records if fits is None else await visit.served.run(_fitting, records, fits)
        if not found and not page.lost and not page.passed:
            yield Batch([Item("rows", {"html": "", "dropped": "0"}, page.cursor)] if records else [])
            continue
        shown, started = found[-MOST_SHOWN:], time.monotonic()
        html = templates.fragment("tail_rows.html", topic=topic.name, records=shown, lost=page.losses)
        dropped = page.passed + len(found) - len(shown)
        yield Batch([Item("rows", {"html": html, "dropped": str(dropped)}, page.cursor)])
        await asyncio.sleep(max(0.0, PAUSE - (time.monotonic() - started)))


def _fitting(records: list[ReadRecord], fits: Fits) -> list[ReadRecord]:
    return [one for one in records if fits(one)]


@pages.page("/topics/{topic}/tail", live=_rows)
async def tail(visit: Visit) -> Shown:
    """Show the page into which the event stream brings the records."""
    topic = await visit.served.topic(visit.path["topic"])
    asked = {name: visit.query.get(name, "") for name in ("partition", "q")}
    up = (("Topics", "/topics"), (topic.name, path_to("topics", topic.name)))
    most = MOST_SEARCHED if asked["q"].strip() else MOST_BEHIND
    about = {"topic": topic.name, "partitions": topic.partitions, "asked": asked, "most": most}
    return Shown("tail.html", f"Live tail of {topic.name}", about, up, "topics")
