"""Agreement: checks that the offsets in a sink and those in the home do not contradict each other.

A sink that keeps offsets with its data knows which messages it has.  The home knows which messages there are, and which
batches a run saw the sink finish.  If one of the two was restored from a backup, they contradict each other:

    the sink has messages that the commit log lacks       the home is older than the sink, or it is another home
    the sink lacks a batch that the home saw finished     the sink is older than the home, or was emptied
    the sink lacks a table, a folder or a topic           another program has dropped or emptied it

A writer that went on would silently skip messages, so it stops.  An operator decides how it continues, with
`tailrace offset mark`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.errors import Diverged
from tailrace.pipeline.deliver.offsets import Mark

Names = tuple[str, str]
"""A pipeline and one of its writers."""


def check_home(names: Names, kept: Mapping[int, Mark], marks: Mapping[int, Mark], ends: Mapping[int, int]) -> None:
    """Raise `Diverged` if the sink has messages beyond the end of the home's commit log."""
    for q, mark in kept.items():
        last = max([mark.low, *mark.ahead.values()])
        if q in marks and mark.word == marks[q].word and last >= ends.get(q, 0):
            raise home_is_older(
                names, f"it has message {q}:{last}, and the commit log ends before {q}:{ends.get(q, 0)}"
            )


def home_is_older(names: Names, why: str) -> Diverged:
    """The error for a sink that has more than this home ever delivered."""
    pipeline, writer = names
    return Diverged(
        f"the sink of {writer!r} knows more of {pipeline!r} than this home: {why}.  The home was restored from a "
        "backup, or another home has a pipeline of this name.  Take the newer home, or restore the sink to the same "
        "time; else copy afresh: give the pipeline another name, and empty its sinks"
    )


def check_sink(names: Names, kept: Mapping[int, Mark], marks: Mapping[int, Mark], finished: Mapping[int, Mark]) -> None:
    """Raise `Diverged` if the sink lacks messages that a run of this home saw it finish."""
    behind = {
        q: kept.get(q, Mark(word=-1))
        for q, mark in sorted(finished.items())
        if q in marks and mark.word == marks[q].word and _before(kept.get(q), mark)
    }
    if behind:
        raise sink_is_older(names, behind, finished)


def _before(kept: Mark | None, finished: Mark) -> bool:
    if kept is None:
        return finished.low >= 0
    return (kept.word, kept.low) < (finished.word, finished.low)


def sink_is_older(names: Names, behind: Mapping[int, Mark], finished: Mapping[int, Mark]) -> Diverged:
    """The error for a sink that lacks batches that were finished in it."""
    pipeline, writer = names
    q, mark = next(iter(behind.items()))
    lacks = "nothing of this pipeline" if mark.word < 0 else f"messages up to {q}:{mark.low}"
    again = [f"tailrace offset mark {pipeline} {writer} {q}:{mark.low} --why restored" for q, mark in behind.items()]
    orders = again if mark.word >= 0 else [f"tailrace offset delete {pipeline} {writer} --why emptied"]
    return Diverged(
        f"the sink of {writer!r} has lost what {pipeline!r} had delivered: it keeps {lacks}, where "
        f"{q}:{finished[q].low} was finished.  It was restored from a backup, or emptied.  To deliver again what the "
        f"commit log still has: {'; '.join(orders)}.  If upkeep has removed some of it, copy afresh under another name"
    )


def places_are_gone(names: Names, gone: Sequence[str]) -> Diverged:
    """The error for a sink that no longer agrees with the home: tables, folders or topics in it that another program
    has dropped or emptied."""
    pipeline, writer = names
    what = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if gone[5:] else "")
    return Diverged(
        f"the sink of {writer!r} has lost what {pipeline!r} had delivered: {what}.  To go on would leave there only "
        f"what comes from now on.  `tailrace offset delete {pipeline} {writer} --why …` has everything delivered again "
        "that the commit log still has; if upkeep has removed some of it, give the writer another name and "
        f"fill='copy'.  If it is meant to be so: `tailrace offset mark {pipeline} {writer} …` with the offsets as they "
        "are goes on"
    )
