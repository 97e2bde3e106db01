"""Actions on a pipeline: marking messages as delivered, and forgetting what a writer has acknowledged.

`step` and `dead retry` run the pipeline's own file, which only its machine has, so the pages show the command."""

from __future__ import annotations

from tailrace.console.api import pipelines
from tailrace.console.api.topics import Reason
from tailrace.console.web.formats import count
from tailrace.console.web.page import REASON, Ask, Field, Pages, Preview, Went
from tailrace.console.web.visit import Visit, path_to, whole

pages = Pages()


def _offset(text: str) -> int:
    return -1 if text == "-1" else whole(text, "the offset", -1)


@pages.action("/pipelines/{pipeline}/writers/{writer}/mark")
async def mark(visit: Visit) -> Ask | Went:
    """Count everything up to a message as delivered, or deliver again from there; after a preview."""
    name, writer = visit.path["pipeline"], visit.path["writer"]
    back = path_to("pipelines", name)
    fields = (
        Field("partition", "Partition of the commit log", "0", "number", required=True),
        Field(
            "offset",
            "Up to offset",
            "",
            "number",
            "Its message counts as delivered, too; -1: none does.",
            required=True,
        ),
        Field("namespace", "Only of the namespace", hint="As in public.orders; empty: of all."),
        REASON,
    )
    say = (
        "Everything up to the offset counts as delivered to this writer, and is not sent.",
        "With a lower offset than now, it is delivered again from there. The writer of a run under way is fenced.",
    )
    ask = Ask(
        f"Mark writer {writer}", "Mark", back, say, fields, danger=True, previews=True, section="pipelines"
    )  # fmt: skip
    if not visit.form:
        return ask
    shown = "preview" in visit.form
    order = pipelines.MarkOrder(
        whole(visit.field("partition"), "the partition", 0), _offset(visit.field("offset")),
        visit.field("why"), visit.field("namespace") or None, shown,
    )  # fmt: skip
    done = await pipelines.mark_offset(visit, order)
    if not shown:
        return Went(back, f"Partition {done.partition} of {writer} is at {done.after:,} now.")
    moves = [done, *done.others]
    skipped, again = sum(one.skipped for one in moves), sum(one.again for one in moves)
    summary = f"{count(skipped, 'message')} will not be delivered, up to {again:,} will be delivered again."
    if done.others:
        summary += " A truncate is in every partition: the others move with this one."
    rows = [
        [str(one.partition), f"{one.before:,}", f"{one.after:,}", f"{one.skipped:,}", f"{one.again:,}"] for one in moves
    ]
    ask.preview = Preview(("Partition", "Now at", "Then at", "Not delivered", "Delivered again"), rows, summary)
    return ask


@pages.action("/pipelines/{pipeline}/writers/{writer}/forget")
async def forget(visit: Visit) -> Ask | Went:
    """Forget what a writer has acknowledged: the next run delivers the whole commit log to it."""
    name, writer = visit.path["pipeline"], visit.path["writer"]
    back = path_to("pipelines", name)
    if not visit.form:
        writers = (await pipelines.list_offsets(visit)).writers
        many = sum(part.end - part.floor for one in writers if one.writer == writer for part in one.partitions)
        say = (f"The next run delivers the whole commit log to {writer}: {count(many, 'message')} now.",)
        title = f"Forget what {writer} has"
        return Ask(title, "Forget", back, say, (REASON,), True, section="pipelines")
    await pipelines.forget_offsets(visit, Reason(visit.field("why")))
    return Went(back, f"What {writer} has acknowledged is forgotten.")
