"""Messages of a queue: pushing one, one message's life as a timeline, and reading and requeuing dead letters."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.console.api import queues
from tailrace.console.web import payload
from tailrace.console.web.formats import count
from tailrace.console.web.page import REASON, Ask, Field, Pages, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import LARGEST, Visit, path_to, whole
from tailrace.errors import BadInput

pages = Pages()
MOST_LETTERS = 1000
COLUMNS = (
    Column("number", "Number", lambda one: one.number, True),
    Column("died", "Given up", lambda one: one.died, True),
    Column("key", "Key", lambda one: payload.brief(one.key)),
    Column("message", "Message"),
    Column("reason", "Why", lambda one: one.reason),
    Column("attempts", "Attempts", lambda one: one.attempts, True),
    Column("state", "State", lambda one: one.requeued),
    Column("", ""),
)


def _up(queue: str) -> tuple[tuple[str, str], ...]:
    return (("Queues", "/queues"), (queue, path_to("queues", queue)))


@pages.page("/queues/{queue}/dead")
async def dead(visit: Visit) -> Shown:
    """Show the newest dead letters with their keys and messages, or the newest before a number."""
    name = visit.path["queue"]
    query = queues.DeadQuery(before=visit.whole("before", LARGEST), limit=MOST_LETTERS)
    found = await queues.list_dead_messages(visit, query)
    table = Table(visit, "", "dead letters", COLUMNS, found.dead, _text, "-number")
    first = found.dead[0].number if found.dead else found.first
    earlier = visit.address(before=first, page=None) if first > found.first else None
    about = {"queue": name, "table": table, "earlier": earlier, "left": found.left, "all": found.end - found.first}
    return Shown("dead.html", f"Dead letters of {name}", about, _up(name), "queues")


def _text(one: queues.DeadMessage) -> str:
    return f"{one.number} {payload.brief(one.key)} {payload.brief(one.value, 2000)} {one.reason}"


@pages.page("/queues/{queue}/dead/{number}")
async def show_letter(visit: Visit) -> Shown:
    """Show one dead letter, whole."""
    name, number = visit.path["queue"], visit.number("number")
    found = await queues.list_dead_messages(visit, queues.DeadQuery(after=number - 1, limit=1))
    if not found.dead or found.dead[0].number != number:
        raise BadInput(f"there is no dead letter {number} of {name!r}")
    letter = found.dead[0]
    view = payload.view_of(letter.value, visit.query.get("view"))
    about: dict[str, Any] = {"queue": name, "letter": letter, "view": view, "views": payload.VIEWS}
    about |= {"text": payload.whole(letter.value, view), "key_text": payload.whole(letter.key, "text")}
    up = (*_up(name), ("Dead letters", path_to("queues", name, "dead")))
    return Shown("letter.html", f"Dead letter {number}", about, up, "queues")


@pages.action("/queues/{queue}/requeue")
async def requeue(visit: Visit) -> Ask | Went:
    """Put dead letters back into the queue: one, some, or all."""
    name, given = visit.path["queue"], visit.query.get("number", "")
    back = path_to("queues", name, "dead")
    if not visit.form:
        which = f"Dead letter {given}" if given else "The dead letters named below, or all of them,"
        say = (f"{which} will be pushed to {name} again, with key and message as they were; attempts count from 1.",)
        fields = (Field("numbers", "Numbers", given, hint="As in 3, 7, 12; empty: all that were not put back."), REASON)
        return Ask(f"Requeue to {name}", "Put back", back, say, fields, section="queues")
    words = visit.field("numbers").replace(",", " ").split()
    numbers = [whole(word, "a number", 0) for word in words]
    done = await queues.requeue_messages(visit, queues.Requeue(visit.field("why"), numbers, not numbers))
    return Went(back, f"{count(done.messages, 'message')} put back into {name}.")


@pages.page("/queues/{queue}/messages/{shard}/{offset}")
async def explain(visit: Visit) -> Shown:
    """Show one message's life."""
    story = await queues.explain_message(visit)
    about = {"queue": visit.path["queue"], "story": story, "key_text": payload.whole(story.key, "text")}
    return Shown("story.html", f"Message {story.shard}:{story.offset}", about, _up(visit.path["queue"]), "queues")


@pages.page("/queues/{queue}/messages")
async def find_message(visit: Visit) -> Shown:
    """Show the life of the message that `?shard=` and `?offset=` name; raise `BadInput` if one of them is missing."""
    if visit.query.get("shard", "").strip() and visit.query.get("offset", "").strip():
        shard, offset = visit.whole("shard", 0), visit.whole("offset", 0)
        visit.path = {**visit.path, "shard": str(shard), "offset": str(offset)}
        return await explain(visit)
    raise BadInput("say which message: its shard and its offset")


@pages.action("/queues/{queue}/push")
async def push(visit: Visit) -> Ask | Went:
    """Push the message that the form has."""
    name = visit.path["queue"]
    if not visit.form:
        fields = (
            Field("json", "Message", "{}", "area", "JSON, as handlers get it.", required=True),
            Field("key", "Key", hint="Messages of one key are handled in order."),
            Field("delay", "Hold back for", hint="Seconds; empty: not at all."),
            Field("dedup", "Id", hint="A message of this id is in the queue once."),
            Field("why", "Reason", hint="Kept in the audit list."),
        )
        return Ask(f"Push to {name}", "Push the message", path_to("queues", name), fields=fields, section="queues")
    text = visit.form.get("json", "")
    if not payload.is_json(text):
        raise BadInput("the message is no JSON")
    delay = visit.field("delay")
    try:
        seconds = float(delay) if delay else None
    except ValueError:
        raise BadInput(f"a delay is a number of seconds, not {delay[:40]!r}") from None
    message = queues.NewMessage(
        json=msgspec.Raw(text.encode()), key=visit.form.get("key") or None, dedup=visit.field("dedup") or None,
        delay=seconds,
    )  # fmt: skip
    async with visit.served.actions.noted(visit, "push message", visit.field("why"), queue=name):
        (done,) = (await queues.push_messages(visit, queues.NewMessages([message]))).pushed
    if done.shard is None or done.offset is None:
        return Went(path_to("queues", name), "Held back." if done.delayed else "It was in the queue already.")
    return Went(path_to("queues", name, "messages", done.shard, done.offset), "Pushed; this is its life.")
