"""Listing: finds the streams by going through the table page by page.

The table has no index of streams, so a listing costs a read of everything in the home: fine for people and for a
projection that reads everything anyway, too much for each request of a web site."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.coordination import guard
from tailrace.errors import BadName
from tailrace.events.event import check_name
from tailrace.events.tip import TIP, tip_key
from tailrace.storage.calls import Store
from tailrace.storage.tables import Item, Key


def streams(store: Store, category: str | None = None, after: str | None = None) -> Iterator[str]:
    """The names of all streams, or of a category's, after the stream `after`; a page of the table at a time. The order
    is the table's: by name on a disk, arbitrary on DynamoDB, and the same each time."""
    wanted = None if category is None else f"{check_category(category)}-"
    at = None if after is None else tip_key(check_name(after))
    while page := store.run(guard.some(at)):
        for item in page:
            if _is_tip(item) and (wanted is None or item["p"].startswith(wanted)):
                yield item["p"]
        at = Key(page[-1]["p"], page[-1]["i"])


def categories(store: Store) -> dict[str, int]:
    """List every category, and how many streams it has; goes through the whole table."""
    found: dict[str, int] = {}
    for name in streams(store):
        category = name.partition("-")[0]
        found[category] = found.get(category, 0) + 1
    return dict(sorted(found.items()))


def check_category(category: str) -> str:
    """Refuse a category that no stream's name can begin with, before its streams are listed."""
    if not isinstance(category, str) or not category or "-" in category or category.startswith("$"):
        raise BadName(f"a category is what comes before the first '-' of a stream's name, not {category!r}")
    return category


def _is_tip(item: Item) -> bool:
    return item["i"] == TIP and not item["p"].startswith("$") and "-" in item["p"]
