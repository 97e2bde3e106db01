"""Reader state: how far a pipeline has read its source, and the phase and last message of each namespace.

    $Reader-<pipeline>, 0            seq, id, page (see log.write.source_append), begun, next
                                     small state: position, phases{namespace: {phase, …}},
                                     fills{writer: {starts, phases{…}}}
                                     large state: position without the entries in parts, buckets, parts{bucket: number}
    $ReaderPart-<pipeline>, number   entries: JSON of [[path, value]…], compressed; never changed

An item holds 400 KB, and a source may have 20,000 tables or a million files.  So a large state is spread over buckets,
each entry by the hash of its path.  A change stores its bucket again under a number that was never used, and the write
that moves the position names that number: bytes first, then one guarded write.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from tailrace.adaptors.contract import Position
from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.errors import TooLarge
from tailrace.log.write.source_append import open_reader
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Delete, Item, Key, Put, Set

EntryPath: TypeAlias = tuple[str, ...]
Entries: TypeAlias = Mapping[EntryPath, Any]
"""Changed entries of the state, by path: ("phases", namespace), ("fills", writer, "phases", namespace), …"""
Changed: TypeAlias = dict[str | tuple[str, ...], Any]
"""Changed attributes of the reader's item, by path."""
GONE: Any = object()
"""Stands for the value of an entry that is removed."""

INLINE_BYTES = 64 * 1024
"""The largest state, as JSON, that is stored in the reader's item itself."""
BUCKET_BYTES = 32 * 1024
"""The approximate size of a bucket, before compression, by which the number of buckets is chosen."""
MAX_PATHS = 16
"""The most entries that a write sets one by one in the item: an expression of DynamoDB has at most 4 KB."""
PARTS_PER_WRITE = 8
"""How many parts one write stores or deletes."""
MAX_PART_BYTES = 380 * 1024
"""The most bytes of a part: an item has at most 400 KB."""

_json, _plain = msgspec.json.encode, msgspec.json.decode


def parts_of(pipeline: str) -> str:
    """The hash key of a pipeline's parts."""
    return f"$ReaderPart-{pipeline}"


@dataclass(slots=True)
class PlannedState:
    """A planned state: it becomes the state once the write with `changes` has succeeded."""

    position: Position
    phases: dict[str, Any]
    fills: dict[str, Any]
    changes: Changed = field(default_factory=dict)
    buckets: list[dict[EntryPath, Any]] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=dict)


class ReaderState:
    """The stored state, kept in memory.  One run at a time changes it."""

    def __init__(self, store: Store, pipeline: str) -> None:
        self._store, self._pipeline = store, pipeline
        self.load()

    def load(self) -> None:
        """Read the stored state."""
        while not self._store.run(self._loaded()):
            pass  # another run has replaced a part between the two reads

    def _loaded(self) -> Steps[bool]:
        self.item = item = yield from open_reader(self._pipeline, None)
        self.phases: dict[str, Any] = dict(item.get("phases", {}))
        self.fills: dict[str, Any] = {writer: dict(fill) for writer, fill in item.get("fills", {}).items()}
        self.position: Position = _plain(item["position"]) if item["position"] is not None else None
        self._parts: dict[str, int] = dict(item.get("parts", {}))
        self._buckets: list[dict[EntryPath, Any]] = [{} for _ in range(item.get("buckets", 0))]
        self._garbage: list[int] = []
        if not self._buckets:
            return True
        stored = {part["i"]: part["entries"] for part in (yield from guard.read_all(parts_of(self._pipeline)))}
        self._garbage = [number for number in stored if number not in self._parts.values()]
        for bucket, number in self._parts.items():
            if number not in stored:
                return False
            some = {tuple(path): value for path, value in _plain(zlib.decompress(stored[number]))}
            self._buckets[int(bucket)] = some
            for path, value in some.items():
                _put({"phases": self.phases, "fills": self.fills, "position": self.position}, path, value)
        return True

    # -- changing
    def plan(self, entries: Entries, position: Position) -> PlannedState:
        """Plan the state with these entries changed and this position; writes nothing."""
        made = PlannedState(position, dict(self.phases), {writer: dict(fill) for writer, fill in self.fills.items()})
        tree = {"phases": made.phases, "fills": made.fills}
        for path, value in entries.items():
            _put(tree, path, value)
        if self._buckets:
            self._plan_parts(made, {**_spread(entries), **dict(_moved(self.position, position))})
        elif len(_json([made.phases, made.fills, position])) <= INLINE_BYTES:
            made.changes = {"position": _json(position).decode(), **_paths(entries, made)}
        else:
            self._plan_all(made)
        return made

    def _plan_parts(self, made: PlannedState, entries: Entries) -> None:
        """Plan new parts for the buckets that have a changed entry."""
        count = len(self._buckets)
        changed: dict[int, dict[EntryPath, Any]] = {}
        for path, value in entries.items():
            n = _bucket(path, count)
            if n not in changed:
                changed[n] = dict(self._buckets[n])
            if value is GONE:
                changed[n].pop(path, None)
            else:
                changed[n][path] = value
        if any(len(_json(list(some.items()))) > 4 * BUCKET_BYTES for some in changed.values()) and count < 4096:
            self._plan_all(made)
            return
        made.buckets = [changed.get(n, some) for n, some in enumerate(self._buckets)]
        made.parts = {**self._parts, **{str(n): _number() for n in changed}}
        made.changes = {"position": _json(_rest(made.position)).decode()}
        if changed:
            made.changes |= (
                {("parts", str(n)): made.parts[str(n)] for n in changed}
                if len(changed) <= MAX_PATHS
                else {"parts": made.parts}
            )

    def _plan_all(self, made: PlannedState) -> None:
        """Plan new parts for the whole state, in as many buckets as it now needs."""
        entries = dict(_entries(made))
        size = len(_json(list(entries.items())))
        count = 1
        while count * BUCKET_BYTES < size and count < 4096:
            count *= 2
        made.buckets = [{} for _ in range(count)]
        for path, value in entries.items():
            made.buckets[_bucket(path, count)][path] = value
        made.parts = {str(n): _number() for n, some in enumerate(made.buckets) if some}
        made.changes = {
            "position": _json(_rest(made.position)).decode(), "phases": {}, "fills": {}, "buckets": count,
            "parts": made.parts,
        }  # fmt: skip

    def put(self, made: PlannedState) -> Steps[None]:
        """Store the new parts of a plan.  Nothing refers to them before the write with its `changes`."""
        new = [(n, number) for n, number in made.parts.items() if self._parts.get(n) != number]
        for at in range(0, len(new), PARTS_PER_WRITE):
            while True:
                puts = [self._part(number, made.buckets[int(n)]) for n, number in new[at : at + PARTS_PER_WRITE]]
                if isinstance((yield from guard.attempt(*puts)), Written):
                    break
                for n, _ in new[at : at + PARTS_PER_WRITE]:  # the write may have happened: use new numbers
                    made.parts[n] = _number()
                new = [(n, made.parts[n]) for n, _ in new]
                _renumber(made)

    def _part(self, number: int, entries: Mapping[EntryPath, Any]) -> Put:
        data = zlib.compress(_json(list(entries.items())), 1)
        if len(data) > MAX_PART_BYTES:
            longest = max(entries, key=lambda path: len(_json(entries[path])))
            raise TooLarge(
                f"what is to be remembered of the source of {self._pipeline!r} has no room: a part of it takes "
                f"{len(data):,} bytes, most of them for {' / '.join(longest)}; read fewer tables or files with one "
                "pipeline (namespace=…)"
            )
        return Put(Key(parts_of(self._pipeline), number), {"entries": data}, (Absent(),))

    def adopt(self, made: PlannedState, item: Item) -> None:
        """Make a plan the current state, after its write has succeeded, and remove the parts that it replaces."""
        old = [number for n, number in self._parts.items() if made.parts.get(n) != number] if made.parts else []
        self.item, self.position, self.phases, self.fills = item, made.position, made.phases, made.fills
        if made.parts:
            self._parts, self._buckets = made.parts, made.buckets
        unused, self._garbage = [*old, *self._garbage], []
        for at in range(0, len(unused), PARTS_PER_WRITE):
            keys = [Key(parts_of(self._pipeline), number) for number in unused[at : at + PARTS_PER_WRITE]]
            self._store.run(guard.attempt(*map(Delete, keys)))


def sets(changes: Changed) -> list[Set]:
    """The changes of a reader's state as `Set` actions of its item."""
    return [Set(path, value) for path, value in changes.items()]


def _number() -> int:
    return secrets.randbits(62)


def _renumber(made: PlannedState) -> None:
    """Put the parts' current numbers into the plan's changes."""
    for path in made.changes:
        if path == "parts":
            made.changes[path] = made.parts
        elif path[0] == "parts":
            made.changes[path] = made.parts[path[1]]


def _bucket(path: EntryPath, count: int) -> int:
    return zlib.crc32("\0".join(path).encode(errors="surrogatepass")) % count


def _put(tree: dict[str, Any], path: EntryPath, value: Any) -> None:
    """Set an entry in nested dictionaries, or remove it."""
    *above, last = path
    for name in above:
        tree = tree.setdefault(name, {})
    if value is GONE:
        tree.pop(last, None)
    else:
        tree[last] = value


def _spread(entries: Entries) -> Entries:
    """Entries as parts store them: a fill that begins becomes an entry with its `starts`."""
    out = dict(entries)
    for path, value in entries.items():
        if path[0] == "fills" and len(path) == 2:
            del out[path]
            out[*path, "starts"] = value["starts"]
    return out


def _paths(entries: Entries, made: PlannedState) -> Changed:
    """The entries as changes of the item: one by one, or all phases and fills if they are many or some are removed."""
    if len(entries) <= MAX_PATHS and GONE not in entries.values():
        return {path: value for path, value in entries.items()}  # noqa: C416
    return {"phases": made.phases, "fills": made.fills}


def _entries(made: PlannedState) -> Iterator[tuple[EntryPath, Any]]:
    """All entries of a planned state."""
    for namespace, phase in made.phases.items():
        yield ("phases", namespace), phase
    for writer, fill in made.fills.items():
        yield ("fills", writer, "starts"), fill["starts"]
        for namespace, phase in fill["phases"].items():
            yield ("fills", writer, "phases", namespace), phase
    yield from _position_entries(made.position)


def _position_entries(position: Position) -> Iterator[tuple[EntryPath, Any]]:
    """The entries of a position that parts store: the dictionaries and lists in it, if it is a dictionary."""
    for name, value in position.items() if isinstance(position, dict) else ():
        for inner, one in _inner(value).items():
            yield ("position", name, inner), one
        if isinstance(value, list | tuple):
            yield ("position", name), value


def _inner(value: Any) -> dict[str, Any]:
    """A dictionary's entries; none for any other value."""
    return value if isinstance(value, dict) else {}


def _rest(position: Position) -> Position:
    """The rest of a position, which the item stores: all but the entries in parts."""
    if not isinstance(position, dict):
        return position
    return {name: value for name, value in position.items() if not value or not isinstance(value, dict | list | tuple)}


def _moved(old: Position, new: Position) -> Iterator[tuple[EntryPath, Any]]:
    """The entries of a position that have changed."""
    before, after = _inner(old), _inner(new)
    for name in _either(before, after):
        was, now = before.get(name), after.get(name)
        if was is now:
            continue
        inner_was, inner_now = _inner(was), _inner(now)
        for inner in _either(inner_was, inner_now):
            if (one := inner_now.get(inner, GONE)) != inner_was.get(inner, GONE):
                yield ("position", name, inner), one
        flat_was, flat_now = (one if isinstance(one, list | tuple) else GONE for one in (was, now))
        if flat_was != flat_now:
            yield ("position", name), flat_now


def _either(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterable[str]:
    yield from other
    yield from (name for name in one if name not in other)


def namespaces_of(store: Store, pipeline: str) -> Sequence[str]:
    """The namespaces that a pipeline has read."""
    return list(ReaderState(store, pipeline).phases)
