"""Topics: the list, one topic, and creating, configuring and deleting one."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tailrace.admin.scrub import size
from tailrace.admin.traffic import traffic
from tailrace.console.api import groups, topics
from tailrace.console.api.topics import Reason
from tailrace.console.web import formats
from tailrace.console.web.page import REASON, Ask, Field, Pages, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to, whole
from tailrace.errors import BadInput
from tailrace.log.settings import FIXED, TopicSettings

pages = Pages()
VALUE_HINT = "A whole number (bytes or milliseconds), true, false, a word as lz4, or null for no limit."
UP = (("Topics", "/topics"),)
_BYTES = ("max_record_bytes", "retention_bytes", "merge_bytes")


class Row(NamedTuple):
    """A topic in the list."""

    name: str
    kind: str
    partitions: int
    appended: int
    kept: int
    rate: float | None


COLUMNS = (
    Column("name", "Topic", lambda row: row.name),
    Column("kind", "Used by", lambda row: row.kind),
    Column("partitions", "Partitions", lambda row: row.partitions, True),
    Column("kept", "Records kept", lambda row: row.kept, True),
    Column("appended", "Appended ever", lambda row: row.appended, True),
    Column("rate", "Rate", lambda row: row.rate or 0.0, True),
    Column("line", "Last minutes"),
)
PARTITION_COLUMNS = (
    Column("partition", "Partition", lambda one: one.partition),
    Column("floor", "First offset", lambda one: one.floor, True),
    Column("end", "Next offset", lambda one: one.end, True),
    Column("kept", "Records kept", lambda one: one.end - one.floor, True),
    Column("", ""),
)
GROUP_COLUMNS = (
    Column("group", "Group", lambda one: one.group),
    Column("members", "Members", lambda one: one.members, True),
    Column("lag", "Lag", lambda one: one.lag.records, True),
    Column("age", "Oldest unread", lambda one: one.lag.seconds, True),
)


@pages.page("/topics")
async def list_topics(visit: Visit) -> Shown:
    """Show the list of topics."""
    look = await visit.pulse.look(visit)
    queues, pipelines = {one.name for one in look.queues}, {one.pipeline for one in look.pipelines}
    rows = [
        Row(one.name, _kind(one.name, queues, pipelines), one.partitions, one.appended, one.kept,
            visit.pulse.rate("appended", one.name))
        for one in look.topics
    ]  # fmt: skip
    table = Table(visit, "", "topics", COLUMNS, rows, lambda row: f"{row.name} {row.kind}", "name")
    return Shown("topics.html", "Topics", {"table": table}, section="topics")


def _kind(name: str, queues: set[str], pipelines: set[str]) -> str:
    if name in queues or name.removesuffix("-dead") in queues:
        return "queue"
    if name.removesuffix("-log") in pipelines:
        return "pipeline"
    return "audit list" if name.endswith("-actions") else ""


def _measured(home: Any, name: str) -> tuple[int, float | None, list[Any]]:
    topic = home.topic(name)
    lately = home.store.run(traffic(topic.log))
    return size(home.store, [name]), lately.bytes_a_day if lately else None, topic.quarantined()


@pages.page("/topics/{topic}")
async def show_topic(visit: Visit) -> Shown:
    """Show one topic."""
    look = await visit.pulse.look(visit)
    name = visit.path["topic"]
    about = await topics.describe_topic(visit)
    run, home = visit.served.run, visit.served.home
    stored, a_day, passed = await visit.pulse.keep(("topic", name), lambda: run(_measured, home, name))
    behind = (await groups.list_groups(visit, groups.GroupListQuery(topic=name))).groups
    ends = Table(
        visit, "partitions", "partitions",
        PARTITION_COLUMNS, about.partitions, lambda p: str(p.partition), "partition",
    )  # fmt: skip
    readers = Table(
        visit, "groups", "groups",
        GROUP_COLUMNS, behind, lambda g: g.group, "group",
    )  # fmt: skip
    shown = {
        "topic": about, "ends": ends, "readers": readers, "stored": stored, "a_day": a_day, "passed": passed,
        "settings": _settings(about.settings), "history": _history(about),
        "is_queue": any(one.name == name for one in look.queues),
    }  # fmt: skip
    return Shown("topic.html", name, shown, UP, "topics")


def _worded(name: str, value: Any) -> str:
    if value is None:
        return "no limit"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ms"):
        return formats.span(value / 1000)
    return formats.size(value) if name in _BYTES else str(value)


def _settings(settings: TopicSettings) -> list[tuple[str, str, bool]]:
    default = msgspec.structs.asdict(TopicSettings())
    now = msgspec.structs.asdict(settings)
    return [(name, _worded(name, value), value != default[name]) for name, value in now.items()]


def _history(about: topics.TopicDescription) -> list[tuple[int, str]]:
    """Return when and how the settings were changed, newest change first."""
    found, before = [], TopicSettings()
    for one in sorted(about.history, key=lambda past: past.version):
        old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(one.settings)
        changed = [f"{n}: {_worded(n, old[n])} → {_worded(n, new[n])}" for n in new if new[n] != old[n]]
        found.append((one.changed, "; ".join(changed) or "as a new topic has them"))
        before = one.settings
    return found[::-1]


# --- actions ----------------------------------------------------------------------------------------------------------
@pages.action("/new-topic")
async def create(visit: Visit) -> Ask | Went:
    """Create a topic."""
    if not visit.form:
        fields = (
            Field("name", "Name", required=True, hint="Letters, digits, dots, dashes and underscores."),
            Field("partitions", "Partitions", "1", "number", "One key's records are in one partition.", required=True),
            Field("why", "Reason", hint="Kept in the audit list."),
        )  # fmt: skip
        return Ask("New topic", "Create the topic", "/topics", fields=fields, section="topics")
    many = whole(visit.field("partitions"), "partitions", 1, least=1, most=10_000)
    await topics.create_topic(visit, topics.NewTopic(visit.field("name"), many, why=visit.field("why")))
    return Went(path_to("topics", visit.field("name")), f"The topic {visit.field('name')} is there.")


@pages.action("/topics/{topic}/settings")
async def configure(visit: Visit) -> Ask | Went:
    """Change one setting."""
    name, back = visit.path["topic"], path_to("topics", visit.path["topic"])
    about = await topics.describe_topic(visit)
    if not visit.form:
        now = msgspec.structs.asdict(about.settings)
        options = [(n, f"{n} (now {_worded(n, v)})") for n, v in now.items() if n not in FIXED]
        fields = (
            Field("setting", "Setting", kind="select", options=options, required=True),
            Field("value", "New value", required=True, hint=VALUE_HINT),
            REASON,
        )  # fmt: skip
        say = ("A change holds for what comes; nothing that is stored is touched until upkeep runs.",)
        return Ask(f"Settings of {name}", "Change the setting", back, say, fields, section="topics")
    typed = visit.field("value")
    plain = typed in ("true", "false", "null") or typed.lstrip("-").isdecimal()
    value = msgspec.Raw(typed.encode() if plain else msgspec.json.encode(typed))
    _check_reason(visit)
    await topics.change_topic(visit, topics.TopicChange({visit.field("setting"): value}, why=visit.field("why")))
    return Went(back, f"{visit.field('setting')} is {typed} now.")


def _check_reason(visit: Visit) -> None:
    topics.check_why(visit.field("why"))


@pages.action("/topics/{topic}/delete")
async def delete(visit: Visit) -> Ask | Went:
    """Delete a topic, once its name was typed."""
    name = visit.path["topic"]
    about = await topics.describe_topic(visit)
    if not visit.form:
        kept = sum(one.end - one.floor for one in about.partitions)
        what = f"{formats.count(kept, 'record')} in {formats.count(len(about.partitions), 'partition')}"
        lost = f"the positions of {formats.count(len(about.groups), 'group')}"
        say = (f"This deletes {what}, and {lost}. It cannot be undone.",)
        fields = (Field("name", "Type the topic's name", required=True), REASON)
        return Ask(f"Delete {name}", "Delete the topic", path_to("topics", name), say, fields, True, section="topics")
    if visit.field("name") != name:
        raise BadInput(f"the name that was typed is not {name!r}; nothing was deleted")
    await topics.delete_topic(visit, Reason(visit.field("why")))
    return Went("/topics", f"The topic {name} is deleted.")
