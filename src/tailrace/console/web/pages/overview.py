"""The overview: what is in the home, how fast it moves, and what needs attention, with the way there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.console.api import queues
from tailrace.console.web.formats import count, span
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.snapshots import Look
from tailrace.console.web.visit import Visit, path_to

pages = Pages()
LATE_SECONDS = 60.0
"""A group whose oldest unread record is older needs attention."""
DEAD_LOOKED_AT = 1000


class Concern(NamedTuple):
    """Something that needs attention: how much, what it is, and where it is mended."""

    tone: str
    what: str
    where: str
    link: str


@pages.page("/")
async def overview(visit: Visit) -> Shown:
    """The first page."""
    look = await visit.pulse.look(visit)
    busiest = sorted(look.topics, key=lambda one: visit.pulse.rate("appended", one.name) or 0.0, reverse=True)[:6]
    concerns = [*_pipelines(look), *await _queues(visit, look), *_groups(look), *_jobs(visit)]
    about = {"look": look, "busiest": busiest, "concerns": concerns, "actions": await _actions(visit)}
    return Shown("overview.html", "Overview", about, section="overview")


async def _actions(visit: Visit) -> list[dict[str, object]]:
    return (await visit.served.actions.list(visit))[-5:][::-1]


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
    """How many dead letters were not put back, of the first so many."""
    path, visit.path = visit.path, {"queue": queue}
    try:
        letters = await queues.list_dead_messages(visit, queues.DeadQuery(limit=DEAD_LOOKED_AT))
    finally:
        visit.path = path
    return sum(not one.requeued for one in letters.dead)


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
