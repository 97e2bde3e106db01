"""The home: its description, the doctor's findings, jobs (scrub, upkeep, costs) and the audit list."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from tailrace.console.api import home
from tailrace.console.api.pipelines import ActionQuery
from tailrace.console.web.page import Ask, Field, Pages, Shown, Went
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit
from tailrace.errors import BadInput

pages = Pages()
DOCTOR_SECONDS = 600.0
"""Seconds for which the page shows the doctor's findings before it asks again: the doctor writes to the disk, and asks
the cloud."""
UP = (("Home", "/home"),)
JOB_COLUMNS = (
    Column("number", "Job", lambda one: one.number, True),
    Column("what", "What", lambda one: one.what),
    Column("state", "State", lambda one: one.state),
    Column("started", "Started", lambda one: one.started, True),
    Column("progress", "Progress"),
)
ACTION_COLUMNS = (
    Column("at", "When", lambda one: one.at, True),
    Column("what", "What", lambda one: one.what),
    Column("about", "About"),
    Column("who", "Who", lambda one: one.who),
    Column("why", "Why", lambda one: one.why),
    Column("outcome", "Outcome", lambda one: one.refused),
)
TONES = {"ok": "good", "warn": "warn", "bad": "bad", "done": "good", "failed": "bad", "running": ""}


@pages.page("/home")
async def show_home(visit: Visit) -> Shown:
    """Show the home, its jobs, and the doctor's findings."""
    about = await home.describe_home(visit)
    jobs = Table(
        visit, "jobs", "jobs", JOB_COLUMNS, (await home.list_jobs(visit)).jobs, lambda one: one.what, "-number"
    )
    findings = (await visit.pulse.keep(("doctor",), lambda: home.see_doctor(visit), DOCTOR_SECONDS)).findings
    shown = {"about": about, "jobs": jobs, "findings": findings, "tones": TONES}
    return Shown("home.html", "Home", shown, section="home")


@pages.page("/home/actions")
async def actions(visit: Visit) -> Shown:
    """Show the audit list."""
    before = visit.whole("before", 0) or None
    found = (await home.list_actions(visit, ActionQuery(before=before))).actions
    table = Table(visit, "", "actions", ACTION_COLUMNS, found, _text, "-at")
    earlier = visit.address(before=found[0].number, page=None) if found and found[0].number else None
    about = {"table": table, "worded": worded, "earlier": earlier}
    return Shown("actions.html", "Audit list", about, UP, "home")


def worded(about: dict[str, Any]) -> str:
    """Return what an action on the audit list was about, on one line."""
    return ", ".join(f"{name} {value}" for name, value in about.items())


def _text(one: Any) -> str:
    return f"{one.what} {one.who} {one.why} {one.refused} {worded(one.about)}"


@pages.page("/home/jobs/{number}")
async def show_job(visit: Visit) -> Shown:
    """Show one job: its progress, and its result or error."""
    job = await home.describe_job(visit)
    plain = msgspec.to_builtins(job.result, enc_hook=str) if job.result is not None else None
    result = json.dumps(plain, indent=2, default=str, ensure_ascii=False) if plain is not None else ""
    return Shown(
        "job.html", f"Job {job.number}: {job.what}", {"job": job, "result": result, "tones": TONES}, UP, "home"
    )


def _start(what: Literal["scrub", "upkeep", "cost"], title: str, button: str, said: str, one: bool) -> None:
    @pages.action(f"/home/start/{what}")
    async def start(visit: Visit) -> Ask | Went:
        if not visit.form:
            hint = "The topic's name." if one else "Names with commas between; empty: all."
            fields = [
                Field("topics", "Topic" if one else "Topics", visit.query.get("topic", ""), hint=hint, required=one)
            ]
            if what == "scrub":
                fields.append(Field("sample", "Part of the chunks", "1", hint="1: all; 0.1: a tenth, at random."))
            fields.append(Field("why", "Reason", hint="Kept in the audit list."))
            return Ask(title, button, "/home", (said,), fields, section="home")
        names = [name.strip() for name in visit.field("topics").split(",") if name.strip()]
        try:
            sample = float(visit.field("sample") or 1)
        except ValueError:
            raise BadInput("the part of the chunks is a number above 0 and up to 1") from None
        job = await home.start_job(visit, home.NewJob(what, names, sample, visit.field("why")))
        return Went(f"/home/jobs/{job.number}", f"Job {job.number} has started.")


_start(
    "scrub", "Scrub", "Start the scrub", "Reads everything again and compares it with what was written. It changes "
    "nothing, and takes as long as reading takes.", False,
)  # fmt: skip
_start(
    "upkeep", "Upkeep", "Start upkeep", "Removes what retention allows, compacts and merges small chunks, and cleans "
    "what is no longer referred to.", False,
)  # fmt: skip
_start("cost", "Costs", "Estimate", "Estimates what a topic costs on S3 and DynamoDB, by what came lately.", True)
