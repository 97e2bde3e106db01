"""Claims: how a run takes over a writer's offsets and its sink from earlier runs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tailrace.adaptors.contract import Who, Writer
from tailrace.errors import Fenced
from tailrace.log.topic import Topic
from tailrace.pipeline.deliver import agreement, offsets
from tailrace.pipeline.deliver.offsets import Mark, reconciled, restored


class SinkClaim:
    """One run's claim on the sink of a writer."""

    def __init__(self, sink: Writer, names: tuple[str, str]) -> None:
        self._sink, self._names, self._by = sink, names, secrets.token_hex(8)
        self._checked = self.taken = False

    def check(self) -> None:
        """Check the sink, and raise what is wrong with it; after a check that has passed, later calls do nothing."""
        if not self._checked:
            self._sink.check()
            self._checked = True

    def take(self, topic: Topic, held: int | None, finished: Mapping[int, Mark] | None) -> tuple[int, dict[int, Mark]]:
        """Claim the sink, or claim it again under a higher epoch: see `begun`."""
        found = begun(topic, self._sink, self._names, held, self._by, finished)
        self.taken = True
        return found


def begun(
    topic: Topic,
    sink: Writer,
    names: tuple[str, str],
    held: int | None = None,
    by: str | None = None,
    finished: Mapping[int, Mark] | None = None,
) -> tuple[int, dict[int, Mark]]:
    """Begin a run of a writer under a new epoch, in the home and in the sink: from now on no earlier run can finish a
    batch.

    Returns the epoch and the marks to continue from: the sink's, where they are further than the home's and no operator
    has set a mark since.  `finished` has the marks that this run saw the sink store.  `Diverged` if the sink and the
    home contradict each other."""
    store = topic.store
    epoch, marks = store.run(offsets.take(*names, topic.partitions, held, by))
    kept = _kept(topic, sink, Who(*names, epoch))
    agreement.check_home(names, kept, marks, {q: end for q, (_, end) in topic.ends().items()})
    agreement.check_sink(names, kept, marks, finished or store.run(offsets.load_finished(*names)))
    _check_places(sink, Who(*names, epoch), kept, marks)
    return epoch, reconciled(marks, kept)


def _check_places(sink: Writer, who: Who, kept: Mapping[int, Mark], marks: Mapping[int, Mark]) -> None:
    """Raise `Diverged` if the sink has lost a table, a folder or a topic, unless an operator has set a mark since the
    last batch."""
    if any(mark.word > kept.get(q, Mark()).word for q, mark in marks.items()):
        sink.forget(who)
    elif gone := sink.lost(who):
        raise agreement.places_are_gone((who.pipeline, who.writer), gone)


def _kept(topic: Topic, sink: Writer, who: Who) -> dict[int, Mark]:
    names = who.pipeline, who.writer
    try:
        kept = sink.claim(who)
    except Fenced:
        kept, known = sink.restore(*names), topic.store.run(offsets.load(*names, topic.partitions))[0]
        if kept is not None and kept["epoch"] > known:
            why = f"it was written by run {kept['epoch']}, and the home has seen {known}"
            raise agreement.home_is_older(names, why) from None
        raise
    return restored(kept["offsets"]) if kept is not None else {}
