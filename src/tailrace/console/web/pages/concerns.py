"""Concerns: what needs attention in a home, each with a link to the page where an operator mends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tailrace.console.api.home import last_upkeep
from tailrace.console.metrics import table_groups
from tailrace.console.web.formats import count, span
from tailrace.console.web.snapshots import Look
from tailrace.console.web.visit import Visit, path_to
from tailrace.errors import NotThere, TailraceError
from tailrace.home import Home

LATE_SECONDS = 60.0
"""A group whose oldest unread record is older needs attention, and so does a queue whose oldest message is."""
DUE_SECONDS = 2 * 86400.0
"""Upkeep should run once a day; after two days without it needs attention."""
SELDOM_SECONDS = 60.0
"""Seconds between checks of all topics, or of all groups of handlers; their results serve all pages."""


class Concern(NamedTuple):
    """Something that needs attention: how much (`tone`), what it is, and the link to where it is mended."""

    tone: str
    what: str
    where: str
    link: str


async def concerns(visit: Visit, look: Look) -> list[Concern]:
    """Return everything that needs attention at this moment."""
    home, run, names = visit.served.home, visit.served.run, [one.name for one in look.topics]
    keep = visit.pulse.keep
    topics = await keep(("of topics",), lambda: run(_of_topics, home, names, time.time()), SELDOM_SECONDS)
    handlers = await keep(("handlers",), lambda: run(_handlers, home), SELDOM_SECONDS)
    return [*_pipelines(look), *await _queues(visit, look), *_groups(look), *handlers, *topics, *_jobs(visit)]


def _pipelines(look: Look) -> Iterator[Concern]:
    for one in look.pipelines:
        link = path_to("pipelines", one.pipeline)
        if one.state.startswith(("stopped", "not running")) or one.error:
            why = f": {one.error}" if one.error else ""
            yield Concern("bad", f"Pipeline {one.pipeline} is {one.state}{why}", "See the pipeline", link)
        for name, sink in one.sinks.items():
            if sink.get("state") == "stopped" or sink.get("error"):
                text = f"Writer {name} of {one.pipeline} is {sink.get('state')}: {sink.get('error')}"
                yield Concern("bad", text, "See the writer", link)
            if sink.get("skipped"):
                text = f"Writer {name} of {one.pipeline} has passed {count(int(sink['skipped']), 'message')}"
                yield Concern("warn", text, "See its dead letters", f"{link}#dead")


async def _queues(visit: Visit, look: Look) -> list[Concern]:
    found = []
    for one in look.queues:
        link = path_to("queues", one.name)
        if one.counts.paused:
            text = f"Queue {one.name} is paused, with {count(one.counts.backlog, 'message')} waiting"
            found.append(Concern("warn", text, "See the queue", link))
        if one.counts.dead and (left := await _dead(visit, one.name)):
            text = f"Queue {one.name} has {count(left, 'dead letter')}"
            found.append(Concern("bad", text, "Read and requeue", f"{link}/dead"))
        if one.counts.backlog and one.counts.oldest_seconds > LATE_SECONDS and not one.counts.paused:
            waited, many = span(one.counts.oldest_seconds), count(one.counts.backlog, "message")
            text = f"Queue {one.name}: the oldest of {many} has waited {waited}"
            found.append(Concern("warn", text, "See the queue", link))
    return found


async def _dead(visit: Visit, queue: str) -> int:
    """Return how many dead letters of a queue were not put back."""
    find = visit.served.home.queue(queue).dead_numbers
    return (await visit.pulse.keep(("dead", queue), lambda: visit.served.run(find))).left


def _of_topics(home: Home, names: list[str], now: float) -> list[Concern]:
    """Return a concern for each topic that has damaged ranges in quarantine, which readers pass over, and one if upkeep
    is due: some topics keep too much without it."""
    found, since = [], list[float]()
    for name in names:
        with suppress(NotThere):  # deleted since it was listed
            topic = home.topic(name)
            if passed := topic.quarantined():
                text = f"Readers of {name} pass over {count(len(passed), 'damaged range')}"
                found.append(Concern("warn", text, "See the topic", path_to("topics", name)))
            if topic.settings.compact or topic.settings.retention_ms or topic.settings.retention_bytes:
                since.append(topic.described.created / 1000)
    if since:
        last = last_upkeep(home)
        due = now - (min(since) if last is None else last / 1000)
        if due > DUE_SECONDS:
            ran = "has never run" if last is None else f"last ran {span(due)} ago"
            text = f"Upkeep {ran}: {count(len(since), 'topic')} with retention or compaction may keep too much"
            found.append(Concern("warn", text, "Start it", "/home/start/upkeep"))
    return found


def _handlers(home: Home) -> list[Concern]:
    """Return the concerns of groups of the feed and of tables' streams that make no progress or have dead letters."""
    found: list[Concern] = []
    for one in home.events().checkpoints.list():
        what, link = f"Consumer {one.group} of the feed", path_to("events", "consumers", one.group, "dead")
        found += _fares(what, [p.error for p in one.partitions], "/events", one.dead_letters, link)
    try:
        for table, name in table_groups(home):
            with suppress(NotThere):
                now = home.engine().group(table, name).status(count=False)
                errors, link = [shard.error for shard in now.shards], path_to("streams", table, "groups", name)
                found += _fares(f"Group {name} of table {table}", errors, link, now.dead_letters, f"{link}/dead")
    except TailraceError as error:  # in AWS, tables take rights that a home does not need
        found.append(Concern("warn", f"The groups of change streams cannot be read: {error}", "See them", "/streams"))
    return found


def _fares(what: str, errors: list[str], link: str, dead: int, dead_link: str) -> Iterator[Concern]:
    if held := [error for error in errors if error]:
        yield Concern("bad", f"{what} does not come forward: {held[0]}", "See the group", link)
    if dead:
        yield Concern("warn", f"{what} has passed {count(dead, 'record')}", "Read its dead letters", dead_link)


def _groups(look: Look) -> Iterator[Concern]:
    queues = {one.name for one in look.queues}
    for one in look.groups:
        if one.lag.seconds > LATE_SECONDS and one.topic not in queues:
            readers = "" if one.members else ", and no process reads for it"
            behind = f"{count(one.lag.records, 'record')} ({span(one.lag.seconds)})"
            text = f"Group {one.group} is {behind} behind in {one.topic}{readers}"
            yield Concern("warn", text, "See the group", path_to("groups", one.group, one.topic))


def _jobs(visit: Visit) -> Iterator[Concern]:
    for job in visit.served.jobs.all():
        if job.state == "failed":
            yield Concern(
                "bad", f"Job {job.number} ({job.what}) failed: {job.error}", "See the job", f"/home/jobs/{job.number}"
            )
