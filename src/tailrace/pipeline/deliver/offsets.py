"""Offsets: what each writer has acknowledged in the commit log, per partition and namespace.

    $Offsets-<pipeline>.<writer>, partition    epoch, by, low, ahead{namespace: offset}, word; in partition 0 also
                                               whole{partition: [low, word]}, finished{partition: [low, word]}

`low`: everything up to it is acknowledged.  `ahead`: of this namespace everything up to there, kept only where it is
above `low`, so that a quiet namespace costs nothing.  A message is pending if its offset is above both.  A lower value
never replaces a higher one, except by an operator's command, which raises the epoch and so fences the run under way.
`word` counts how often one has: what a sink kept under an earlier word says nothing any more, however many runs have
begun since. `by` is unique to each run: two that have read the same epoch cannot both have the next, and one that
begins again, and is cut off in the middle, knows the half of it as its own.

`whole` is stored first, and has the marks of all partitions as they were at one moment: a command that concerns a whole
namespace is in every partition, and is either behind all of them or before all, also after a crash between two writes.

`finished` has the marks that a sink, which keeps offsets with its data, was last seen to store: see agreement.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.errors import Fenced
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, AtMost, Equals, Item, Key, Put, Set, Update


@dataclass(slots=True)
class Mark:
    """What a writer has acknowledged in one partition."""

    low: int = -1
    ahead: dict[str, int] = field(default_factory=dict)
    word: int = field(default=0, compare=False)

    def pending(self, namespace: str, offset: int) -> bool:
        """Whether this message is still to be delivered."""
        return offset > self.reached(namespace)

    def acknowledge(self, offset: int, namespace: str | None = None) -> None:
        """Everything up to an offset is done: of one namespace, or of all.  A lower offset changes nothing."""
        if namespace is None:
            self.low = max(self.low, offset)
        elif offset > self.reached(namespace):
            self.ahead[namespace] = offset
        self.ahead = {name: at for name, at in self.ahead.items() if at > self.low}

    def reached(self, namespace: str) -> int:
        """Up to which offset everything of a namespace is acknowledged."""
        return max(self.low, self.ahead.get(namespace, -1))

    def copy(self) -> Mark:
        """One that can be changed without changing this."""
        return Mark(self.low, dict(self.ahead), self.word)

    @property
    def resume(self) -> int:
        """Where reading starts again."""
        return self.low + 1


def is_untouched(marks: Mapping[int, Mark]) -> bool:
    """Whether nothing was ever acknowledged, and no operator has said where to start."""
    return all(mark.low < 0 and not mark.ahead and not mark.word for mark in marks.values())


def stored(marks: Mapping[int, Mark]) -> dict[str, Any]:
    """Marks as they are kept in a sink: anything that JSON can hold."""
    return {str(q): {"low": m.low, "ahead": m.ahead, "word": m.word} for q, m in sorted(marks.items())}


def restored(kept: Mapping[str, Any]) -> dict[int, Mark]:
    """Marks that a sink kept."""
    return {int(q): Mark(mark["low"], dict(mark["ahead"]), mark["word"]) for q, mark in kept.items()}


def reconciled(marks: Mapping[int, Mark], kept: Mapping[int, Mark]) -> dict[int, Mark]:
    """Where to go on: by the offset log, or by what a sink kept with its data where that is further.

    A batch whose messages were all filtered leaves no trace in the sink; and an operator's mark counts more than the
    sink's offsets."""
    further = {q: m for q, m in kept.items() if q in marks and m.word == marks[q].word and m.low >= marks[q].low}
    return {**marks, **further}


def offsets_key(pipeline: str, writer: str, partition: int) -> Key:
    """Where a writer's mark is."""
    return Key(f"$Offsets-{pipeline}.{writer}", partition)


def load(pipeline: str, writer: str, partitions: int) -> Steps[tuple[int, dict[int, Mark]]]:
    """A writer's epoch and marks; partitions it has never acknowledged anything of start at -1."""
    items = yield from guard.read_all(offsets_key(pipeline, writer, 0).p)
    marks = {q: Mark() for q in range(partitions)}
    for item in items:
        marks[item["i"]] = Mark(item["low"], dict(item["ahead"]), item["word"])
    for q, (low, word) in (items[0].get("whole", {}) if items else {}).items():
        if word == marks[int(q)].word:
            marks[int(q)].acknowledge(low)
    return max((item["epoch"] for item in items), default=0), marks


def take(
    pipeline: str, writer: str, partitions: int, held: int | None = None, by: str | None = None
) -> Steps[tuple[int, dict[int, Mark]]]:
    """Begin a run: an epoch above every one before, in all partitions; gives it and the marks.

    `held`: this run's last epoch, if it begins again after an error; `Fenced` if another run has a newer one."""
    items = yield from guard.read_all(offsets_key(pipeline, writer, 0).p)
    if held is not None and any(item["epoch"] > held and item.get("by") != by for item in items):
        raise Fenced(f"the writer {writer!r} of {pipeline!r} was taken over by another run or an operator")
    epoch = max((item["epoch"] for item in items), default=0) + 1
    plan = partial(_taken, pipeline, writer, epoch, by or secrets.token_hex(8))
    for q in range(partitions):
        yield from guard.settle(offsets_key(pipeline, writer, q), partial(plan, q))
    _, marks = yield from load(pipeline, writer, partitions)
    return epoch, marks


def _taken(
    pipeline: str, writer: str, epoch: int, by: str, q: int, item: Item | None
) -> tuple[Put | Update, ...] | None:
    key = offsets_key(pipeline, writer, q)
    if item is None:
        return (Put(key, {"epoch": epoch, "by": by, "low": -1, "ahead": {}, "word": 0}, (Absent(),)),)
    if (item["epoch"], item.get("by")) == (epoch, by):
        return None
    if item["epoch"] >= epoch:
        raise Fenced(f"another run of the writer {writer!r} of {pipeline!r} has begun; this one must stop")
    return (Update(key, (Set("epoch", epoch), Set("by", by)), (Equals("epoch", item["epoch"]),)),)


def load_finished(pipeline: str, writer: str) -> Steps[dict[int, Mark]]:
    """The marks that the sink was last seen to store; none if it keeps no offsets, or has not finished anything."""
    item = yield from guard.read(offsets_key(pipeline, writer, 0))
    return {int(q): Mark(low, word=word) for q, (low, word) in (item or {}).get("finished", {}).items()}


def save(
    pipeline: str, writer: str, epoch: int, marks: Mapping[int, Mark], finished: Mapping[int, Mark] | None = None
) -> Steps[None]:
    """Store marks that have risen; `Fenced` if an operator or another run has taken over."""
    whole = [Set(name, _lows(some)) for name, some in (("whole", marks), ("finished", finished)) if some]
    for q, mark in sorted(marks.items()):
        key = offsets_key(pipeline, writer, q)
        changes = (Set("low", mark.low), Set("ahead", dict(mark.ahead)), *(whole if q == 0 else []))
        while True:
            outcome = yield from guard.attempt(Update(key, changes, (Equals("epoch", epoch), AtMost("low", mark.low))))
            if isinstance(outcome, Written):
                break
            item = outcome.item if isinstance(outcome, Refused) else (yield from guard.read(key))
            if item is None or item["epoch"] != epoch:
                raise Fenced(f"the writer {writer!r} of {pipeline!r} was taken over by another run or an operator")
            if item["low"] >= mark.low:
                break


def _lows(marks: Mapping[int, Mark]) -> dict[str, list[int]]:
    return {str(q): [mark.low, mark.word] for q, mark in marks.items()}


def override(pipeline: str, writer: str, partition: int, mark: Mark) -> Steps[int]:
    """Store a mark that an operator set, higher or lower; raises the epoch, which fences the run under way."""
    key = offsets_key(pipeline, writer, partition)
    before = yield from guard.read(key)
    plan = partial(_overridden, key, mark, before["word"] if before else 0)
    item = yield from guard.settle(key, plan, before, known=True)
    assert item is not None
    return int(item["epoch"])


def _overridden(key: Key, mark: Mark, heard: int, item: Item | None) -> tuple[Put | Update, ...] | None:
    new = {"low": mark.low, "ahead": dict(mark.ahead)}
    if item is None:
        return (Put(key, {"epoch": 1, "word": 1, **new}, (Absent(),)),)
    if item["word"] > heard and (item["low"], item["ahead"]) == (mark.low, mark.ahead):
        return None
    risen = {"epoch": item["epoch"] + 1, "word": item["word"] + 1, "by": ""}
    changes = tuple(Set(name, value) for name, value in {**new, **risen}.items())
    return (Update(key, changes, (Equals("epoch", item["epoch"]),)),)
