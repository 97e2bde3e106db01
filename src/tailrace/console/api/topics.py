"""Topics over HTTP: list, describe, create, configure, delete."""

from __future__ import annotations

import msgspec

from tailrace.console.operation import Call, Operations
from tailrace.errors import AlreadyThere, BadInput, NotThere
from tailrace.home import Home
from tailrace.log.catalog import check_partitions, find
from tailrace.log.groups.group import groups_of
from tailrace.log.settings import TopicSettings
from tailrace.log.settings import settings as checked
from tailrace.log.topic import Topic

operations = Operations()


class TopicSummary(msgspec.Struct):
    """A topic in a list: how many partitions it has, how many records were ever appended, and how many are kept."""

    name: str
    partitions: int
    appended: int
    kept: int


class TopicList(msgspec.Struct):
    """A page of topics in the order of their names; `next` is the `after` of the next page, null at the end."""

    topics: list[TopicSummary]
    next: str | None = None


class TopicListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which topics to list: those whose names begin with `prefix` and come behind `after`."""

    prefix: str = ""
    after: str = ""
    limit: int = 100


class PartitionEnds(msgspec.Struct):
    """A partition: its lowest offset that is kept, and the offset of the next record to be appended."""

    partition: int
    floor: int
    end: int


class PastSettings(msgspec.Struct):
    """Settings that a topic has had, and since when, in milliseconds since 1970."""

    version: int
    changed: int
    settings: TopicSettings


class TopicDescription(msgspec.Struct):
    """A topic; `created` is in milliseconds since 1970."""

    name: str
    id: str
    created: int
    settings: TopicSettings
    partitions: list[PartitionEnds]
    groups: list[str]
    history: list[PastSettings]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create."""

    name: str
    partitions: int = 1
    settings: TopicSettings = TopicSettings()
    why: str = ""


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a topic: some settings by name, more partitions, or both."""

    settings: dict[str, msgspec.Raw] = {}
    partitions: int | None = None
    why: str = ""


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    """The reason for an action, which the audit list keeps."""

    why: str


def check_limit(limit: int, most: int) -> int:
    """Return the most items that a page of an answer may have; raise `BadInput` unless it is from 1 to `most`."""
    if not 1 <= limit <= most:
        raise BadInput(f"limit is a number from 1 to {most:,}, not {limit}")
    return limit


def check_why(why: str) -> str:
    """Return an operator's reason for an action; raise `BadInput` if it is blank."""
    if not why.strip():
        raise BadInput("say why; it is kept in the audit list")
    return why


def _summaries(home: Home, names: list[str]) -> list[TopicSummary]:
    found = []
    for name in names:
        try:
            ends = home.topic(name).ends().values()
        except NotThere:  # deleted since it was listed
            continue
        found.append(TopicSummary(name, len(ends), sum(b for _, b in ends), sum(b - a for a, b in ends)))
    return found


@operations.get("/topics", answer=TopicList, query=TopicListQuery)
async def list_topics(call: Call, query: TopicListQuery) -> TopicList:
    """List topics, with how many records were appended to each."""
    limit = check_limit(query.limit, 1000)
    names = await call.served.run(call.served.home.topics)
    chosen = [name for name in names if name.startswith(query.prefix) and name > query.after]
    found = await call.served.run(_summaries, call.served.home, chosen[:limit])
    return TopicList(found, chosen[limit - 1] if len(chosen) > limit else None)


def _described(topic: Topic) -> TopicDescription:
    ends = [PartitionEnds(q, floor, end) for q, (floor, end) in topic.ends().items()]
    history = [PastSettings(*one) for one in topic.history()]
    names, about = topic.store.run(groups_of(topic.id)), topic.described
    return TopicDescription(topic.name, topic.id, about.created, topic.settings, ends, names, history)


@operations.get("/topics/{topic}", answer=TopicDescription)
async def describe_topic(call: Call) -> TopicDescription:
    """Describe a topic: its partitions, settings and their history, and its consumer groups."""
    topic = await call.served.run(call.served.home.topic, call.path["topic"])
    return await call.served.run(_described, topic)


@operations.post("/topics", answer=TopicDescription, body=NewTopic, status=201)
async def create_topic(call: Call, body: NewTopic) -> TopicDescription:
    """Create a topic."""
    given = {n: v for n, v in msgspec.to_builtins(body.settings).items() if v != getattr(TopicSettings(), n)}
    checked(given)
    check_partitions(body.partitions)
    await call.served.actions.refuse_own(call, body.name)
    if await call.served.run(call.served.home.store.run, find(body.name)) is not None:
        raise AlreadyThere(f"topic {body.name!r} exists already")
    async with call.served.actions.noted(call, "create topic", body.why, topic=body.name, partitions=body.partitions):
        made = await call.served.run(call.served.home.create_topic, body.name, body.partitions, **given)
    return await call.served.run(_described, made)


@operations.patch("/topics/{topic}", answer=TopicDescription, body=TopicChange)
async def change_topic(call: Call, body: TopicChange) -> TopicDescription:
    """Change a topic's settings, or give it more partitions."""
    await call.served.actions.refuse_own(call, call.path["topic"])
    topic = await call.served.run(call.served.home.topic, call.path["topic"])
    given = {name: msgspec.json.decode(value) for name, value in body.settings.items()}
    if not given and body.partitions is None:
        raise BadInput("say what to change: settings, partitions, or both")
    checked(given, topic.settings)
    async with call.served.actions.noted(
        call, "change topic", body.why, topic=topic.name, settings=given or None, partitions=body.partitions
    ):
        if given:
            await call.served.run(topic.configure, **given)
        if body.partitions is not None:
            await call.served.run(topic.grow, body.partitions)
    call.served.forget(topic.name)
    return await call.served.run(_described, topic)


@operations.delete("/topics/{topic}", body=Reason)
async def delete_topic(call: Call, body: Reason) -> None:
    """Delete a topic and everything in it."""
    await call.served.actions.refuse_own(call, call.path["topic"])
    topic = await call.served.run(call.served.home.topic, call.path["topic"])
    async with call.served.actions.noted(call, "delete topic", check_why(body.why), topic=topic.name):
        await call.served.run(call.served.home.delete_topic, topic.name)
    call.served.forget(topic.name)
