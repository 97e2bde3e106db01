"""Pipelines over HTTP: their status, commit log, offsets and dead letters, and the actions of operators on them.

No answer has the settings of a pipeline's source or sinks: they may hold passwords.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from tailrace.adaptors.rows.json_text import finite, plain
from tailrace.adaptors.rows.message import Message
from tailrace.console.api.topics import Reason, check_limit, check_why
from tailrace.console.audit import actor
from tailrace.console.cursor import cursor_of, is_cursor, parsed
from tailrace.console.data import Data, data_of
from tailrace.console.operation import Call, Operations
from tailrace.errors import BadInput, NotThere
from tailrace.home import Home
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.operate import ledger, operator
from tailrace.pipeline.operate.operator import Logged

operations = Operations()
MOST_MESSAGES = 1000
MOST_ACTIONS = 10_000


class PipelineStatus(msgspec.Struct):
    """The status that a pipeline's run last reported, `at` milliseconds since 1970.  `sources` has each namespace's
    phase and progress, `sinks` each writer's state, rows, lag and error.  `left_out` counts the namespaces that
    `sources` leaves out."""

    pipeline: str
    state: str
    error: str
    position: str
    delay: float
    records: int
    at: int
    sources: dict[str, Any]
    sinks: dict[str, Any]
    left_out: int = 0


class Pipelines(msgspec.Struct):
    """The pipelines of a home."""

    pipelines: list[PipelineStatus]


class WriterOffset(msgspec.Struct):
    """How far a writer is in a partition: it has acknowledged all messages up to `low`, and those of the namespaces in
    `ahead` up to a higher offset."""

    partition: int
    low: int
    ahead: dict[str, int]
    floor: int
    end: int
    pending: int


class WriterOffsets(msgspec.Struct):
    """How far a writer is in each partition."""

    writer: str
    partitions: list[WriterOffset]


class PipelineOffsets(msgspec.Struct):
    """How far every writer of a pipeline is."""

    writers: list[WriterOffsets]


class LoggedMessage(msgspec.Struct):
    """A message of the commit log: its mode and op, the document's namespace and id, and its data."""

    partition: int
    offset: int
    timestamp: int
    mode: str
    op: str
    namespace: str
    id: Data
    transaction: Any
    position: Any
    data: Any


class LogPage(msgspec.Struct):
    """A page of a commit log; `next` is the cursor of the next page."""

    messages: list[LoggedMessage]
    next: str


class LogQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """The cursor to start from (0:17,1:3; default: the oldest message), and how many messages to return."""

    start: str = ""
    limit: int = 100


class DeadPipelineLetter(msgspec.Struct):
    """A message that a writer has put aside, with the error; `at` is in milliseconds since 1970."""

    number: int
    at: int
    writer: str
    partition: int
    offset: int
    namespace: str
    id: str
    error: str


class DeadPipelineLetters(msgspec.Struct):
    """The dead letters of a pipeline that are not settled."""

    dead: list[DeadPipelineLetter]


class WholeDeadLetter(msgspec.Struct):
    """A dead letter with its message."""

    letter: DeadPipelineLetter
    message: LoggedMessage


class Action(msgspec.Struct):
    """An action of an operator, the operator's name, and why; `at` is in milliseconds since 1970."""

    at: int
    what: str
    who: str
    why: str
    about: dict[str, Any]
    refused: str
    """Why the action was refused or failed; empty if it was done."""
    number: int
    """The action's place on the list, which `before` takes."""


class ActionQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many actions to list at most: the newest, or the newest before the number `before`."""

    limit: int = 1000
    before: int | None = None


class ActionList(msgspec.Struct):
    """Actions of operators, oldest first."""

    actions: list[Action]


class MarkOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The message up to which everything counts as delivered: of one namespace, or of all.  With `preview` the server
    only says what would move."""

    partition: int
    offset: int
    why: str = ""
    namespace: str | None = None
    preview: bool = False


class MarkMove(msgspec.Struct):
    """How a mark moves a writer in one partition: the writer does not get `skipped` messages, and gets up to `again`
    messages once more."""

    partition: int
    before: int
    after: int
    skipped: int
    again: int


class Marked(MarkMove):
    """The moves of a mark; `done` is false for a preview.  `others` are the partitions that move too, since a truncate
    is in every partition."""

    others: list[MarkMove]
    done: bool


async def listed(call: Call, pipeline: str | None, query: ActionQuery) -> ActionList:
    """Return a page of the actions on the home, or on a pipeline if it is named."""
    limit = check_limit(query.limit, MOST_ACTIONS)
    named = {field.name for field in msgspec.structs.fields(Action)}
    found = []
    for note in await call.served.actions.list(call, pipeline, limit, query.before):
        about = {name: value for name, value in note.items() if name not in named}
        what, who, why = (str(note.get(name, "")) for name in ("what", "who", "why"))
        found.append(Action(note["at"], what, who, why, about, str(note.get("refused", "")), note["number"]))
    return ActionList(found)


def _status(shown: dict[str, Any]) -> PipelineStatus:
    known = {field.name for field in msgspec.structs.fields(PipelineStatus)}
    return msgspec.convert({name: value for name, value in shown.items() if name in known}, PipelineStatus)


def _all(home: Home) -> list[PipelineStatus]:
    found = []
    for name in ledger.pipelines(home):
        with suppress(NotThere):  # its first run has not reported a status yet
            found.append(_status(ledger.reported(home, name)))
    return found


@operations.get("/pipelines", answer=Pipelines)
async def list_pipelines(call: Call) -> Pipelines:
    """List pipelines, each with its status."""
    return Pipelines(await call.served.run(_all, call.served.home))


@operations.get("/pipelines/{pipeline}", answer=PipelineStatus)
async def describe_pipeline(call: Call) -> PipelineStatus:
    """Describe a pipeline: phases of its namespaces, state and lag of its writers, errors."""
    return _status(await call.served.run(ledger.reported, call.served.home, call.path["pipeline"]))


def _offsets(home: Home, pipeline: str) -> PipelineOffsets:
    ends = operator.commit_log(home, pipeline).ends()
    return PipelineOffsets(
        [
            WriterOffsets(
                writer,
                [
                    WriterOffset(q, m.low, m.ahead, *ends[q], max(0, ends[q][1] - m.resume))
                    for q, m in operator.marks(home, pipeline, writer).items()
                ],
            )
            for writer in operator.writers(home, pipeline)
        ]
    )


@operations.get("/pipelines/{pipeline}/offsets", answer=PipelineOffsets)
async def list_offsets(call: Call) -> PipelineOffsets:
    """List the writers of a pipeline, and what each has acknowledged of the commit log."""
    return await call.served.run(_offsets, call.served.home, call.path["pipeline"])


def _message(logged: Logged) -> LoggedMessage:
    m: Message = logged.message
    return LoggedMessage(
        logged.partition, logged.offset, m.timestamp, m.mode.name.lower(), m.op.name.lower(), m.namespace,
        data_of(m.id.encode(errors="surrogateescape")), m.place.transaction, m.place.position, plain(finite(m.data)),
    )  # fmt: skip


def _log(home: Home, pipeline: str, query: LogQuery) -> LogPage:
    limit, ends = check_limit(query.limit, MOST_MESSAGES), operator.commit_log(home, pipeline).ends()
    if query.start and not is_cursor(query.start):
        raise BadInput(f"from is a cursor, as in 0:17,1:3, not {query.start[:60]!r}")
    given = parsed(query.start) if query.start else {}
    if unknown := given.keys() - ends.keys():
        raise BadInput(f"the commit log of {pipeline!r} has no partition {min(unknown)}")
    at = {q: max(floor, given.get(q, floor)) for q, (floor, _) in ends.items()}
    found = [*islice(operator.messages(home, pipeline, dict(at), {q: end for q, (_, end) in ends.items()}), limit)]
    for one in found:
        at[one.partition] = one.offset + 1
    return LogPage([_message(one) for one in found], cursor_of(at))


@operations.get("/pipelines/{pipeline}/log", answer=LogPage, query=LogQuery)
async def read_commit_log(call: Call, query: LogQuery) -> LogPage:
    """Read the commit log of a pipeline: every message that it has read from its source."""
    return await call.served.run(_log, call.served.home, call.path["pipeline"], query)


# --- dead letters -----------------------------------------------------------------------------------------------------
def _letters(home: Home, pipeline: str) -> list[DeadPipelineLetter]:
    operator.commit_log(home, pipeline)
    return msgspec.convert(operator.dead(home, pipeline), list[DeadPipelineLetter])


@operations.get("/pipelines/{pipeline}/dead", answer=DeadPipelineLetters)
async def list_dead_letters(call: Call) -> DeadPipelineLetters:
    """List the messages that writers have put aside as dead letters."""
    return DeadPipelineLetters(await call.served.run(_letters, call.served.home, call.path["pipeline"]))


def _letter(home: Home, pipeline: str, number: int) -> WholeDeadLetter:
    operator.commit_log(home, pipeline)
    found, message = operator.dead_one(home, pipeline, number)
    letter = msgspec.convert(found, DeadPipelineLetter)
    return WholeDeadLetter(letter, _message(Logged(letter.partition, letter.offset, message)))


@operations.get("/pipelines/{pipeline}/dead/{number}", answer=WholeDeadLetter, numbers=("number",))
async def read_dead_letter(call: Call) -> WholeDeadLetter:
    """Read a dead letter with its message."""
    return await call.served.run(_letter, call.served.home, call.path["pipeline"], call.number("number"))


# --- what operators do ------------------------------------------------------------------------------------------------
@operations.get("/pipelines/{pipeline}/actions", answer=ActionList, query=ActionQuery)
async def list_pipeline_actions(call: Call, query: ActionQuery) -> ActionList:
    """List the actions of operators on a pipeline, with their names and reasons."""
    name = call.path["pipeline"]
    await call.served.run(operator.commit_log, call.served.home, name)
    return await listed(call, name, query)


@operations.post("/pipelines/{pipeline}/writers/{writer}/mark", answer=Marked, body=MarkOrder)
async def mark_offset(call: Call, body: MarkOrder) -> Marked:
    """Count everything up to a message as delivered; or, if the message is lower than the writer's offset, deliver
    again from there.  This fences the writer of a run under way."""
    home, pipeline, writer = call.served.home, call.path["pipeline"], call.path["writer"]
    given = (home, pipeline, writer, body.partition, body.offset)
    planned = await call.served.run(operator.plan_mark, *given, body.namespace)
    if not body.preview:
        why = check_why(body.why)
        with ledger.acting(actor(call)):
            await call.served.run(operator.mark, *given, why, body.namespace)
    before, after = planned
    moves = {q: _move(q, before[q], mark, body.namespace) for q, mark in after.items()}
    mine = moves.pop(body.partition)
    return Marked(**msgspec.structs.asdict(mine), others=list(moves.values()), done=not body.preview)


def _move(partition: int, before: Mark, after: Mark, namespace: str | None) -> MarkMove:
    was, now = (mark.reached(namespace) if namespace else mark.low for mark in (before, after))
    return MarkMove(partition, was, now, max(0, now - was), max(0, was - now))


@operations.post("/pipelines/{pipeline}/writers/{writer}/forget", answer=PipelineOffsets, body=Reason)
async def forget_offsets(call: Call, body: Reason) -> PipelineOffsets:
    """Forget what a writer has acknowledged: the next run delivers the whole commit log to it."""
    home, pipeline = call.served.home, call.path["pipeline"]
    why = check_why(body.why)
    with ledger.acting(actor(call)):
        await call.served.run(operator.forget, home, pipeline, call.path["writer"], why)
    return await call.served.run(_offsets, home, pipeline)
