"""Pipelines: the list, one pipeline as a graph with phases, writers and errors, its commit log and its dead letters."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.console.api import pipelines
from tailrace.console.web import payload
from tailrace.console.web.page import Pages, Shown
from tailrace.console.web.tables import Column, Table
from tailrace.console.web.visit import Visit, path_to
from tailrace.pipeline.operate import ledger

pages = Pages()
UP = (("Pipelines", "/pipelines"),)


def _lag(one: pipelines.PipelineStatus) -> int:
    return max((int(sink.get("lag", 0)) for sink in one.sinks.values()), default=0)


COLUMNS = (
    Column("name", "Pipeline", lambda one: one.pipeline),
    Column("state", "State", lambda one: one.state),
    Column("records", "Read by this run", lambda one: one.records, True),
    Column("rate", "Rate"),
    Column("delay", "Delay of the source", lambda one: one.delay, True),
    Column("writers", "Writers", lambda one: len(one.sinks), True),
    Column("lag", "Most behind", _lag, True),
)
SOURCE_COLUMNS = (
    Column("namespace", "Namespace", lambda one: one[0]),
    Column("phase", "Phase", lambda one: one[1]["phase"]),
    Column("progress", "Progress of the copy"),
    Column("copied", "Rows copied", lambda one: one[1].get("copied", 0), True),
    Column("changes", "Changes followed", lambda one: one[1].get("changes", 0), True),
)
DEAD_COLUMNS = (
    Column("number", "Number", lambda one: one.number, True),
    Column("at", "When", lambda one: one.at, True),
    Column("writer", "Writer", lambda one: one.writer),
    Column("namespace", "Namespace", lambda one: one.namespace),
    Column("id", "Id", lambda one: one.id),
    Column("error", "Error", lambda one: one.error),
)
TONES = {"following": "good", "copying": "good", "running": "good", "collecting": "good", "waiting": "warn"}


def left(visit: Visit, pipeline: str, namespace: str, source: dict[str, Any]) -> float | None:
    """Return how many seconds the copy of a namespace takes, by the rate at which it goes on; None if that is not
    known."""
    rate = visit.pulse.rate("copied", f"{pipeline}/{namespace}")
    if source.get("phase") != "copy" or not rate or not source.get("rows"):
        return None
    rest = source["rows"] - source["copied"]
    return rest / rate if rest > 0 else None


def tone(state: str) -> str:
    """Return the colour of a pipeline's or writer's state: good, warn, bad, or none."""
    return "bad" if state.startswith("not running") or "stopped" in state else TONES.get(state, "")


@pages.page("/pipelines")
async def list_pipelines(visit: Visit) -> Shown:
    """Show the list of pipelines."""
    look = await visit.pulse.look(visit)
    table = Table(visit, "", "pipelines", COLUMNS, look.pipelines, lambda one: f"{one.pipeline} {one.state}", "name")
    return Shown("pipelines.html", "Pipelines", {"table": table, "tone": tone, "most": _lag}, section="pipelines")


def _ends(known: dict[str, Any] | None) -> dict[str, Any]:
    """Return the adaptors of a pipeline's source and sinks and the names of its functions, without any settings."""
    known = known or {}
    sinks = {
        name: {"adaptor": str(one.get("adaptor", "")), "functions": [str(f[0]) for f in one.get("functions", [])]}
        for name, one in known.get("sinks", {}).items()
    }
    return {"source": str(known.get("source", {}).get("adaptor", "source")), "sinks": sinks}


@pages.page("/pipelines/{pipeline}")
async def show_pipeline(visit: Visit) -> Shown:
    """Show one pipeline."""
    await visit.pulse.look(visit)
    status = await pipelines.describe_pipeline(visit)
    name = status.pipeline
    offsets = (await pipelines.list_offsets(visit)).writers
    known = await visit.served.run(ledger.remembered, visit.served.home, name)
    sources = Table(
        visit, "sources", "namespaces", SOURCE_COLUMNS, [*status.sources.items()], lambda o: o[0], "namespace"
    )
    letters = (await pipelines.list_dead_letters(visit)).dead
    dead = Table(visit, "dead", "dead letters", DEAD_COLUMNS, letters, _text, "-number")
    actions = (await pipelines.list_pipeline_actions(visit, pipelines.ActionQuery(limit=50))).actions[::-1]
    about = {
        "status": status, "offsets": offsets, "sources": sources, "dead": dead, "actions": actions, "tone": tone,
        "left": lambda one: left(visit, name, *one),
        "ends": _ends(known), "logged": sum(p.end - p.floor for p in offsets[0].partitions) if offsets else 0,
    }  # fmt: skip
    return Shown("pipeline.html", name, about, UP, "pipelines")


def _text(one: pipelines.DeadPipelineLetter) -> str:
    return f"{one.number} {one.writer} {one.namespace} {one.id} {one.error}"


@pages.page("/pipelines/{pipeline}/log")
async def commit_log(visit: Visit) -> Shown:
    """Show the commit log, every message that the pipeline has read, from a cursor on."""
    name = visit.path["pipeline"]
    limit = visit.whole("limit", 50, least=1, most=500)
    page = await pipelines.read_commit_log(visit, pipelines.LogQuery(visit.query.get("from", "").strip(), limit))
    told = [(one, payload.brief(_json(one.data), 200)) for one in page.messages]
    more = visit.address(**{"from": page.next}) if len(page.messages) == limit else None
    about = {"pipeline": name, "told": told, "next": more, "asked": visit.query.get("from", "")}
    return Shown(
        "commit_log.html", f"Commit log of {name}", about, (*UP, (name, path_to("pipelines", name))), "pipelines"
    )


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


@pages.page("/pipelines/{pipeline}/dead/{number}")
async def show_letter(visit: Visit) -> Shown:
    """Show one dead letter, with the message that caused the error."""
    name = visit.path["pipeline"]
    whole = await pipelines.read_dead_letter(visit)
    text = payload.whole(_json(whole.message.data), "json")
    about = {"pipeline": name, "letter": whole.letter, "message": whole.message, "text": text}
    title = f"Dead letter {whole.letter.number}"
    return Shown("pipeline_letter.html", title, about, (*UP, (name, path_to("pipelines", name))), "pipelines")
