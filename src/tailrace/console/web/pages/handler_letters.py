"""Dead letters of handlers: the list of the events or changes that a consumer has put aside, and settling one."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.console.api import handler_letters as api
from tailrace.console.api.handler_letters import HandlerLetter
from tailrace.console.api.topics import Reason
from tailrace.console.web import payload
from tailrace.console.web.page import REASON, Ask, Pages, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to

pages = Pages()
OF_FEED, OF_TABLE = "/events/consumers/{group}/dead", "/streams/{table}/groups/{group}/dead"
COLUMNS = (
    Column("at", "Passed by", lambda one: one.at, True),
    Column("unit", "Shard or partition", lambda one: one.unit),
    Column("id", "Id", lambda one: one.id),
    Column("error", "Error", lambda one: one.error),
    Column("record", "Record"),
    Column("", ""),
)


def _listed(visit: Visit, letters: Sequence[HandlerLetter], here: str, up: Sequence[tuple[str, str]]) -> Shown:
    table = Table(visit, "", "dead letters", COLUMNS, letters, _text, "-at")
    about = {"table": table, "text": lambda one: payload.whole(_json(one), "json", payload.MOST_LISTED), "here": here}
    return Shown("handler_letters.html", f"Dead letters of {visit.path['group']}", about, up, here.split("/")[1])


def _json(one: HandlerLetter) -> str:
    return bytes(one.record).decode()


def _text(one: HandlerLetter) -> str:
    return f"{one.unit} {one.id} {one.error} {_json(one)}"


@pages.page(OF_FEED)
async def of_feed(visit: Visit) -> Shown:
    """Show the dead letters of a group of the feed."""
    found = await api.list_feed_letters(visit)
    here = path_to("events", "consumers", visit.path["group"], "dead")
    return _listed(visit, found.dead, here, (("Event streams", "/events"),))


@pages.page(OF_TABLE)
async def of_table(visit: Visit) -> Shown:
    """Show the dead letters of a group of a table's stream."""
    found = await api.list_stream_letters(visit)
    table, group = visit.path["table"], visit.path["group"]
    group_path = path_to("streams", table, "groups", group)
    up = (("Change streams", "/streams"), (table, path_to("streams", table)), (group, group_path))
    return _listed(visit, found.dead, f"{group_path}/dead", up)


def _asked(visit: Visit, back: str) -> Ask:
    say = ("Removes this dead letter. The handler does not get it again: do by hand what it would have done.",)
    title = f"Settle a dead letter of {visit.path['group']}"
    return Ask(title, "It is dealt with", back, say, (REASON,), section=back.split("/")[1])


@pages.action(OF_FEED + "/{number}/settle")
async def settle_of_feed(visit: Visit) -> Ask | Went:
    """Settle a dead letter of a group of the feed, which removes it."""
    back = path_to("events", "consumers", visit.path["group"], "dead")
    if not visit.form:
        return _asked(visit, back)
    await api.settle_feed_letter(visit, Reason(visit.field("why")))
    return Went(back, "The dead letter is settled.")


@pages.action(OF_TABLE + "/{number}/settle")
async def settle_of_table(visit: Visit) -> Ask | Went:
    """Settle a dead letter of a group of a table's stream, which removes it."""
    back = path_to("streams", visit.path["table"], "groups", visit.path["group"], "dead")
    if not visit.form:
        return _asked(visit, back)
    await api.settle_stream_letter(visit, Reason(visit.field("why")))
    return Went(back, "The dead letter is settled.")
