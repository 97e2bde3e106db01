"""Queues: the list, one queue with its shards and consumers, and pause, play, purge and replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tailrace.console.api import queues
from tailrace.console.api.topics import Reason, check_why
from tailrace.console.web.formats import count, span
from tailrace.console.web.page import REASON, Ask, Field, Pages, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to, whole
from tailrace.errors import BadInput

pages = Pages()
UP = (("Queues", "/queues"),)
COLUMNS = (
    Column("name", "Queue", lambda one: one.name),
    Column("state", "State", lambda one: one.counts.paused),
    Column("backlog", "Backlog", lambda one: one.counts.backlog, True),
    Column("running", "Running", lambda one: one.counts.running, True),
    Column("failing", "Failing", lambda one: one.counts.failing, True),
    Column("delayed", "Delayed", lambda one: one.counts.delayed, True),
    Column("acked", "Done", lambda one: one.counts.acked, True),
    Column("dead", "Dead", lambda one: one.counts.dead, True),
    Column("age", "Oldest", lambda one: one.counts.oldest_seconds, True),
    Column("line", "Backlog, last minutes"),
)
SHARD_COLUMNS = (
    Column("shard", "Shard", lambda one: one.shard),
    Column("owner", "Consumer", lambda one: one.counts.owner),
    Column("waiting", "Waiting", lambda one: one.counts.waiting, True),
    Column("running", "Running", lambda one: one.counts.running, True),
    Column("failing", "Failing", lambda one: one.counts.failing, True),
    Column("acked", "Done", lambda one: one.counts.acked, True),
    Column("errored", "Errors", lambda one: one.counts.errored, True),
    Column("dead", "Dead", lambda one: one.counts.dead, True),
    Column("age", "Oldest", lambda one: one.counts.oldest_seconds, True),
)


@pages.page("/queues")
async def list_queues(visit: Visit) -> Shown:
    """Show the list of queues."""
    look = await visit.pulse.look(visit)
    table = Table(visit, "", "queues", COLUMNS, look.queues, lambda one: one.name, "name")
    return Shown("queues.html", "Queues", {"table": table}, section="queues")


@pages.page("/queues/{queue}")
async def show_queue(visit: Visit) -> Shown:
    """Show one queue: counters, backlog over time, shards and their consumers."""
    await visit.pulse.look(visit)
    queue = await queues.describe_queue(visit)
    shards = Table(visit, "", "shards", SHARD_COLUMNS, queue.shards, lambda s: f"{s.shard} {s.counts.owner}", "shard")
    settings = [(name, _worded(name, value)) for name, value in msgspec.structs.asdict(queue.settings).items()]
    about = {"queue": queue, "shards": shards, "settings": settings}
    return Shown("queue.html", queue.name, about, UP, "queues")


def _worded(name: str, value: Any) -> str:
    if value is None or value == ():
        return "none"
    if name in ("backoff", "max_backoff", "timeout"):
        return span(value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


# --- supervising ------------------------------------------------------------------------------------------------------
def _verb(word: str, label: str, said: str, handler: Callable[..., Awaitable[queues.Done]], danger: bool) -> None:
    @pages.action(f"/queues/{{queue}}/{word}")
    async def act(visit: Visit) -> Ask | Went:
        queue = await queues.describe_queue(visit)
        back = path_to("queues", queue.name)
        if not visit.form:
            said_now = said.format(backlog=count(queue.counts.backlog, "message"))
            return Ask(f"{label} {queue.name}", label, back, (said_now,), (REASON,), danger, section="queues")
        done = await handler(visit, Reason(visit.field("why")))
        many = f" {count(done.messages, 'message')}." if done.messages else ""
        return Went(back, f"Done: {done.did}.{many}")


_verb(
    "pause", "Pause", "No process gets another message until it is played again; {backlog} are waiting now. Handlers "
    "that have one finish it.", queues.pause_queue, False,
)  # fmt: skip
_verb("play", "Play", "Consumers get messages again; {backlog} are waiting.", queues.play_queue, False)
_verb(
    "purge", "Purge", "Drops every message that is not done: {backlog} now. They are not handled, and cannot be had "
    "back here; a replay delivers them again as long as they are kept.", queues.purge_queue, True,
)  # fmt: skip


@pages.action("/queues/{queue}/rebalance")
async def rebalance(visit: Visit) -> Ask | Went:
    """Share out the shards, or give the queue more."""
    queue = await queues.describe_queue(visit)
    back, now = path_to("queues", queue.name), len(queue.shards)
    if not visit.form:
        say = (
            "Waits until the consumers have shared the shards out evenly, for up to ten seconds.",
            "More shards let more consumers work; the messages of one key stay in order.",
        )
        fields = (Field("shards", "Shards", str(now), "number", f"It has {now}; it can get more, not fewer."), REASON)
        return Ask(f"Rebalance {queue.name}", "Rebalance", back, say, fields, section="queues")
    shards = whole(visit.field("shards"), "shards", now, least=1, most=10_000)
    order = queues.Rebalance(visit.field("why"), None if shards == now else shards)
    done = await queues.rebalance_queue(visit, order)
    shares = ", ".join(f"{name} {many}" for name, many in done.consumers.items()) or "no consumer has any"
    return Went(back, f"{count(done.shards, 'shard')}: {shares}.")


@pages.action("/queues/{queue}/settings")
async def configure(visit: Visit) -> Ask | Went:
    """Change one setting."""
    queue = await queues.describe_queue(visit)
    back = path_to("queues", queue.name)
    if not visit.form:
        now = msgspec.structs.asdict(queue.settings)
        options = [(name, f"{name} (now {_worded(name, value)})") for name, value in now.items()]
        fields = (
            Field("setting", "Setting", kind="select", options=options, required=True),
            Field(
                "value",
                "New value",
                required=True,
                hint="A number (seconds, attempts), key, none, or null for no limit.",
            ),
            REASON,
        )
        say = ("Workers that start afterwards obey it.",)
        return Ask(f"Settings of {queue.name}", "Change the setting", back, say, fields, section="queues")
    check_why(visit.field("why"))
    change = queues.QueueChange({visit.field("setting"): _typed(visit.field("value"))}, visit.field("why"))
    await queues.change_queue(visit, change)
    return Went(back, f"{visit.field('setting')} is {visit.field('value')} now.")


def _typed(text: str) -> Any:
    """Return what was typed as JSON, or as text if it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


@pages.action("/queues/{queue}/delete")
async def delete(visit: Visit) -> Ask | Went:
    """Delete a queue, once its name was typed."""
    queue = await queues.describe_queue(visit)
    name, open_ = queue.name, queue.counts.backlog + queue.counts.delayed
    if not visit.form:
        working = f" {', '.join(queue.consumers)} handle it now." if queue.consumers else ""
        say = (
            f"This deletes {count(open_, 'message')} that were not handled, and all dead letters, for good.{working}",
        )
        fields = (Field("name", "Type the queue's name", required=True), REASON)
        return Ask(f"Delete {name}", "Delete the queue", path_to("queues", name), say, fields, True, section="queues")
    if visit.field("name") != name:
        raise BadInput(f"the name that was typed is not {name!r}; nothing was deleted")
    await queues.delete_queue(visit, Reason(visit.field("why")))
    return Went("/queues", f"The queue {name} is deleted.")


@pages.action("/queues/{queue}/replay")
async def replay(visit: Visit) -> Ask | Went:
    """Deliver messages again."""
    name = visit.path["queue"]
    if not visit.form:
        say = ("Delivers messages again, beside the live ones. No acknowledged position moves.",)
        fields = (
            Field("from", "From", required=True, hint="A time, how long ago (2h), or an offset of each shard."),
            Field("to", "Up to", hint="The same; empty: now."),
            REASON,
        )
        return Ask(f"Replay {name}", "Deliver again", path_to("queues", name), say, fields, True, section="queues")
    order = queues.ReplayOrder(visit.field("from"), visit.field("why"), visit.field("to") or None)
    done = await queues.replay_queue(visit, order)
    return Went(path_to("queues", name), f"{count(done.messages, 'message')} will be delivered again.")


@pages.action("/new-queue")
async def create(visit: Visit) -> Ask | Went:
    """Create a queue."""
    if not visit.form:
        fields = (
            Field("name", "Name", required=True),
            Field("shards", "Shards", "24", "number", "The most consumers that can share it.", required=True),
            Field("why", "Reason", hint="Kept in the audit list."),
        )
        return Ask("New queue", "Create the queue", "/queues", fields=fields, section="queues")
    shards = visit.field("shards")
    given = {"name": visit.field("name"), "shards": int(shards) if shards.isdecimal() else shards or None}
    try:
        order = msgspec.convert({**given, "why": visit.field("why")}, queues.NewQueue)
    except msgspec.ValidationError as error:
        raise BadInput(f"this is no queue: {error}") from None
    await queues.create_queue(visit, order)
    return Went(path_to("queues", order.name), f"The queue {order.name} is there.")
