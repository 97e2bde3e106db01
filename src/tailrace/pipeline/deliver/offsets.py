"""Offsets: which messages of the commit log each writer has acknowledged, per partition and namespace.

    $Offsets-<pipeline>.<writer>, partition    epoch, by, low, ahead{namespace: offset}, word; in partition 0 also
                                               whole{partition: [low, word]}, finished{partition: [low, word]}

`low`: every message up to this offset is acknowledged.  `ahead`: every message of a namespace up to its offset is
acknowledged; stored only if it is above `low`.  A message is pending if its offset is above both.  A lower value never
replaces a higher one, except when an operator sets a mark, which raises the epoch and so fences the current run.

`word` counts the operator's marks: offsets that a sink has stored under an earlier `word` are void, however many runs
have begun since.  `by` is unique to each run: of two runs that have read the same epoch only one can get the next, and
a run that is interrupted while it takes an epoch recognizes the items that it has written.

`whole` is stored first and has the marks of all partitions at one moment.  So a command, which is in every partition,
is either behind all marks or before all, even after a crash between the writes of two partitions.

`finished` has the marks that the sink was last seen to store, if it keeps offsets with its data: see agreement.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tailrace.coordination import guard
from tailrace.errors import Fenced
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Set, Update


@dataclass(slots=True)
class Mark:
    """A writer's acknowledgements in one partition: see the module's docstring."""

    low: int = -1
    ahead: dict[str, int] = field(default_factory=dict)
    word: int = field(default=0, compare=False)

    def pending(self, namespace: str, offset: int) -> bool:
        """Whether the message of this offset is still to be delivered."""
        return offset > self.reached(namespace)

    def acknowledge(self, offset: int, namespace: str | None = None) -> None:
        """Acknowledge every message up to an offset, of one namespace or of all.  A lower offset changes nothing."""
        if namespace is None:
            self.low = max(self.low, offset)
        elif offset > self.reached(namespace):
            self.ahead[namespace] = offset
        self.ahead = {name: at for name, at in self.ahead.items() if at > self.low}

    def reached(self, namespace: str) -> int:
        """The offset up to which every message of a namespace is acknowledged."""
        return max(self.low, self.ahead.get(namespace, -1))

    def copy(self) -> Mark:
        """A copy of the mark that can be changed by itself."""
        return Mark(self.low, dict(self.ahead), self.word)

    @property
    def resume(self) -> int:
        """The offset at which the writer reads on."""
        return self.low + 1


def is_untouched(marks: Mapping[int, Mark]) -> bool:
    """Whether the writer has acknowledged nothing, and no operator has set a mark."""
    return all(mark.low < 0 and not mark.ahead and not mark.word for mark in marks.values())


def stored(marks: Mapping[int, Mark]) -> dict[str, Any]:
    """A writer's marks as JSON values, which a sink stores with its data."""
    return {str(q): {"low": m.low, "ahead": m.ahead, "word": m.word} for q, m in sorted(marks.items())}


def restored(kept: Mapping[str, Any]) -> dict[int, Mark]:
    """The marks that a sink has stored, from the values of `stored`."""
    return {int(q): Mark(mark["low"], dict(mark["ahead"]), mark["word"]) for q, mark in kept.items()}


def reconciled(marks: Mapping[int, Mark], kept: Mapping[int, Mark]) -> dict[int, Mark]:
    """The marks from which a writer continues: the home's, or in each partition those in the sink if they are further.

    The home's may be further, since a batch whose messages were all filtered stores nothing in the sink.  An operator's
    mark overrides the sink's offsets."""
    further = {q: m for q, m in kept.items() if q in marks and m.word == marks[q].word and m.low >= marks[q].low}
    return {**marks, **further}


def offsets_key(pipeline: str, writer: str, partition: int) -> Key:
    """The key of a writer's mark in a partition."""
    return Key(f"$Offsets-{pipeline}.{writer}", partition)


def load(pipeline: str, writer: str, partitions: int) -> Steps[tuple[int, dict[int, Mark]]]:
    """A writer's epoch, and its marks; -1 in partitions of which it has acknowledged nothing."""
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
    """Begin a writer's run: store an epoch above all earlier ones in every partition, and return it with the marks.

    `held` is this run's last epoch, if it begins again after an error; `Fenced` if another run has a newer one."""
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
    """The marks that the sink was last seen to store; none if it keeps no offsets or has finished nothing."""
    item = yield from guard.read(offsets_key(pipeline, writer, 0))
    return {int(q): Mark(low, word=word) for q, (low, word) in (item or {}).get("finished", {}).items()}


def save(
    pipeline: str, writer: str, epoch: int, marks: Mapping[int, Mark], finished: Mapping[int, Mark] | None = None
) -> Steps[None]:
    """Store the marks of a writer in a run, which only rise; `Fenced` if an operator or another run has taken over."""
    shared = {name: _lows(some) for name, some in (("whole", marks), ("finished", finished)) if some}
    items = {item["i"]: item for item in (yield from guard.read_all(offsets_key(pipeline, writer, 0).p))}
    plan = partial(_saved, pipeline, writer, epoch)
    for q, mark in sorted(marks.items()):
        wanted = {"low": mark.low, "ahead": dict(mark.ahead), **(shared if q == 0 else {})}
        yield from guard.settle(offsets_key(pipeline, writer, q), partial(plan, q, wanted), items.get(q), known=True)


def _saved(
    pipeline: str, writer: str, epoch: int, q: int, wanted: Mapping[str, Any], item: Item | None
) -> tuple[Update, ...] | None:
    """The write that stores what differs.  It is refused if anything of that has changed since it was read: a write
    that lands late must not put older values in place of newer ones."""
    if item is None or item["epoch"] != epoch:
        raise Fenced(f"the writer {writer!r} of {pipeline!r} was taken over by another run or an operator")
    changed = [name for name, value in wanted.items() if item.get(name) != value]
    if item["low"] > wanted["low"] or not changed:
        return None
    read = [Equals(name, item[name]) if name in item else Absent(name) for name in dict.fromkeys(["low", *changed])]
    changes = tuple(Set(name, wanted[name]) for name in changed)
    return (Update(offsets_key(pipeline, writer, q), changes, (Equals("epoch", epoch), *read)),)


def _lows(marks: Mapping[int, Mark]) -> dict[str, list[int]]:
    return {str(q): [mark.low, mark.word] for q, mark in marks.items()}


def override(pipeline: str, writer: str, partition: int, mark: Mark) -> Steps[int]:
    """Store a mark of a writer that an operator has set, higher or lower; raises the epoch, which fences the current
    run, and returns it."""
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
