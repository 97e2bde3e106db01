"""The home over HTTP: its contents, its audit list, the doctor's findings, and jobs (scrub, upkeep, cost estimates)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import msgspec

from tailrace._version import __version__
from tailrace.admin import cost as costs
from tailrace.admin.scrub import size
from tailrace.admin.traffic import traffic
from tailrace.console.api.pipelines import ActionList, ActionQuery, listed
from tailrace.console.jobs import Job
from tailrace.console.operation import Call, Operations
from tailrace.coordination import guard
from tailrace.coordination.lease import TTL_SECONDS, lease_key
from tailrace.errors import BadInput
from tailrace.home import Home
from tailrace.log.groups.group import groups
from tailrace.log.upkeep.scheduler import LEASE
from tailrace.pipeline.operate import ledger

operations = Operations()
GIB = 1 << 30


class HomeDescription(msgspec.Struct):
    """A home: where it is, how many topics, groups, queues and pipelines it has, and the caller's name and role."""

    url: str
    id: str
    version: str
    topics: int
    groups: int
    queues: int
    pipelines: int
    name: str
    role: str
    read_only: bool
    last_upkeep: int | None
    """When upkeep last ended, in milliseconds since 1970; null if it has never run."""


class Finding(msgspec.Struct):
    """The finding of one of the doctor's checks.  `level` is ok, warn or bad; `mend` says what to do about it."""

    name: str
    level: str
    found: str
    mend: str = ""


class Findings(msgspec.Struct):
    """The findings of all of the doctor's checks."""

    findings: list[Finding]


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    """The job to start: a scrub of all topics or some, of all chunks or a sample; upkeep; or an estimate of a topic's
    costs in the cloud."""

    what: Literal["scrub", "upkeep", "cost"]
    topics: list[str] = []
    sample: float = 1.0
    why: str = ""


class JobList(msgspec.Struct):
    """The jobs that this server has started, newest first."""

    jobs: list[Job]


def _described(home: Home) -> dict[str, int]:
    return {
        "topics": len(home.topics()),
        "groups": len(home.store.run(groups())),
        "queues": len(home.queues()),
        "pipelines": len(ledger.pipelines(home)),
    }


@operations.get("/home", answer=HomeDescription)
async def describe_home(call: Call) -> HomeDescription:
    """Describe the home, and say what the caller may do."""
    home, who = call.served.home, call.who
    counts = await call.served.run(_described, home)
    about = {"url": home.url, "id": home.id, "version": __version__, **counts}
    last = await call.served.run(last_upkeep, home)
    return HomeDescription(
        **about, name=who.name, role=who.role, read_only=call.served.gate.read_only, last_upkeep=last,  # type: ignore[arg-type]
    )  # fmt: skip


def last_upkeep(home: Home) -> int | None:
    """Return when upkeep last ended, in milliseconds since 1970, to within seconds; None if it has never run."""
    item = home.store.run(guard.read(lease_key(LEASE)))
    return None if item is None else int(item["shown"]["expires"] - TTL_SECONDS * 1000)


@operations.get("/home/actions", answer=ActionList, query=ActionQuery)
async def list_actions(call: Call, query: ActionQuery) -> ActionList:
    """List the actions of operators on this home over HTTP, with their names and reasons.  Actions on a pipeline are
    listed with the pipeline."""
    return await listed(call, None, query)


@operations.get("/home/doctor", answer=Findings)
async def see_doctor(call: Call) -> Findings:
    """Check the server's machine and the home: what works, what does not, and how to mend it."""
    found = await call.served.run(lambda: [*call.served.doctor(call.served.url)])
    return Findings([Finding(**asdict(one)) for one in found])


# --- jobs -------------------------------------------------------------------------------------------------------------
@operations.post("/home/jobs", answer=Job, body=NewJob, status=202)
async def start_job(call: Call, body: NewJob) -> Job:
    """Start a scrub, upkeep or an estimate of costs.  The answer has the number by which a client watches the job."""
    home = call.served.home
    if not 0 < body.sample <= 1:
        raise BadInput(f"sample is the part of the chunks to read, above 0 and up to 1, not {body.sample}")
    for name in body.topics:
        await call.served.topic(name)
    if body.what == "cost" and len(body.topics) != 1:
        raise BadInput("an estimate is of one topic: topics = [NAME]")
    work = {"scrub": _scrub, "upkeep": _upkeep, "cost": _cost}[body.what]
    async with call.served.actions.noted(call, body.what, body.why, topics=body.topics or None):
        return call.served.jobs.start(body.what, lambda job: work(home, body, job))


def _scrub(home: Home, body: NewJob, job: Job) -> Any:
    job.total = int(size(home.store, body.topics or None) * body.sample)

    def told(read: int) -> None:
        job.done += read

    return home.scrub(body.topics or None, sample=body.sample, told=told).as_json()


def _upkeep(home: Home, body: NewJob, job: Job) -> Any:
    return [asdict(one) for one in home.upkeep(*body.topics)]


def _cost(home: Home, body: NewJob, job: Job) -> Any:
    topic, asked = home.topic(body.topics[0]), costs.prices(None)
    lately = home.store.run(traffic(topic.log))
    volume = lately.bytes_a_day if lately is not None else GIB
    job.total = costs.STEPS

    def told(steps: int) -> None:
        job.done += steps

    found = costs.estimate(topic.partitions, costs.mean_record_size(topic) or 1024, volume, asked, lately, told)
    return {"prices": asked, **msgspec.to_builtins(found)}


@operations.get("/home/jobs", answer=JobList)
async def list_jobs(call: Call) -> JobList:
    """List the jobs that this server has started, newest first."""
    return JobList(call.served.jobs.all())


@operations.get("/home/jobs/{number}", answer=Job, numbers=("number",))
async def describe_job(call: Call) -> Job:
    """Describe a job: its progress, and its result or error."""
    return call.served.jobs.one(call.number("number"))
