"""Manifests: how a batch of more topics than one transaction can change is appended.

    $Batch-<pipeline>.<writer>, base + n    d: a part of the manifest, which has every topic's chunks by groups
    $Sink-<pipeline>.<writer>, 0            rolling{base, parts, groups, done}: the batch that is being appended

The writer stores the manifest first, when nothing refers to it.  Then one guarded write of the sink's item stores the
offsets and names the manifest: this write decides for the whole batch.  Then the writer appends group after group, each
in one transaction that also counts up `done`, so that each group is appended once.  A writer that begins, or finishes
its next batch, first appends the rest of the batch before.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.adaptors.topic.sink.guards import GroupGuard, SinkGuard, store_alone
from tailrace.coordination import guard
from tailrace.errors import NotReady, ObjectMissing, UnknownTopic
from tailrace.home import Home
from tailrace.log.write.guarded_append import commit_guarded
from tailrace.log.write.placement import Placed
from tailrace.log.write.repartition_stored import ChunkOrigin
from tailrace.log.write.staged_chunk import StagedChunks, place_staged
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ACTIONS, MAX_WRITE_BYTES
from tailrace.storage.tables import Absent, Delete, Item, Key, Put

_log = logging.getLogger("tailrace")
PART_BYTES = 256 * 1024
GROUP_ACTIONS, GROUP_BYTES = MAX_ACTIONS - 10, MAX_WRITE_BYTES // 2
"""How much of a transaction's limits one group uses."""

Topics = Mapping[str, tuple[str, list[StagedChunks]]]
"""What a batch appends: topic → (its id, staged chunks)."""


def groups(topics: Topics) -> list[dict[str, tuple[str, list[StagedChunks]]]]:
    """Divide the topics of a batch into groups that each fit into one transaction."""
    out: list[dict[str, tuple[str, list[StagedChunks]]]] = []
    actions = size = 0
    for name, (id, parcels) in sorted(topics.items()):
        more = 1 + sum(len(parcel.data) for parcel in parcels)
        bytes = sum(len(d) for parcel in parcels for d in parcel.data.values())
        if not out or actions + more > GROUP_ACTIONS or size + bytes > GROUP_BYTES:
            out.append({})
            actions = size = 0
        out[-1][name] = (id, parcels)
        actions, size = actions + more, size + bytes
    return out


def encode(some: Sequence[Topics]) -> bytes:
    """A manifest in its stored form."""
    return msgspec.msgpack.encode(
        [{name: [id, [_packed(p) for p in parcels]] for name, (id, parcels) in group.items()} for group in some]
    )


def decode(data: bytes) -> list[dict[str, tuple[str, list[StagedChunks]]]]:
    """A manifest from its stored form."""
    return [
        {name: (id, [_unpacked(p) for p in parcels]) for name, (id, parcels) in group.items()}
        for group in msgspec.msgpack.decode(data)
    ]


def _packed(parcel: StagedChunks) -> list[Any]:
    made = {id: [one.partitions, one.pinned, one.compression] for id, one in parcel.origins.items()}
    return [parcel.entries, parcel.data, parcel.records, made]


def _unpacked(stored: list[Any]) -> StagedChunks:
    entries, data, records, made = stored
    how = {id: ChunkOrigin(n, tuple(map(tuple, pinned)), compression) for id, (n, pinned, compression) in made.items()}
    return StagedChunks(tuple(entries), data, records, how)


@dataclass(slots=True)
class Manifests:
    """The manifests of one writer."""

    home: Home
    sink: Key

    @property
    def _list(self) -> str:
        return f"$Batch-{self.sink.p.removeprefix('$Sink-')}"

    def keep(self, some: Sequence[Topics]) -> dict[str, int]:
        """Store a manifest; return what the sink's item must have in `rolling`."""
        data, base = encode(some), secrets.randbits(46) << 16
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        for n, part in enumerate(parts):
            self.home.store.run(_stored(Key(self._list, base + n), part))
        return {"base": base, "parts": len(parts), "groups": len(some), "done": 0}

    def tidy(self) -> None:
        """Delete manifests that the sink's item does not name.  The run that has claimed the sink calls it.

        A run may store a manifest now and name it later.  So this run first takes a turn of the item: a run
        that has read the item before can then name nothing any more.  If another run takes the turn, this one deletes
        nothing."""
        item = self.home.store.run(guard.read(self.sink))
        if item is None:
            return
        rolling = item.get("rolling") or {"base": -1, "parts": 0}
        stored = [part["i"] for part in self.home.store.run(guard.read_all(self._list))]
        unnamed = [i for i in stored if not 0 <= i - rolling["base"] < rolling["parts"]]
        turn = SinkGuard(self.sink, item).turn()
        if unnamed and isinstance(self.home.store.run(guard.attempt(turn)), guard.Written):
            self._delete(unnamed)

    def roll_forward(self) -> None:
        """Append what is left of the batch that the sink's item names, and delete its manifest.  Does nothing if it
        names none.  Raises `NotReady` if what it must append is gone."""
        item = self.home.store.run(guard.read(self.sink))
        while item is not None and (rolling := item.get("rolling")):
            low = rolling["base"]
            parts = self.home.store.run(guard.read_all(self._list, low, low + rolling["parts"] - 1))
            there = len(parts) == rolling["parts"]
            if there:
                some = decode(b"".join(bytes(part["d"]) for part in parts))
                self._append(item, some[rolling["done"]])
            item = self.home.store.run(guard.read(self.sink))
            left = (item or {}).get("rolling") or {}
            if not there and left.get("base") == low:  # if not, another run has just finished the batch
                raise _gone("its manifest")
            if item is not None and not left:
                self._delete(range(low, low + rolling["parts"]))

    def _delete(self, some: Iterable[int]) -> None:
        for i in some:
            self.home.store.run(guard.attempt(Delete(Key(self._list, i))))

    def _append(self, item: Item, topics: Topics) -> None:
        decider = GroupGuard(self.sink, item)
        try:
            placed = list(self._placed(topics))
            self.home.store.run(commit_guarded(placed, decider) if placed else store_alone(decider))
        except ObjectMissing as error:
            raise _gone(error.name) from error

    def _placed(self, topics: Topics) -> Iterator[Placed]:
        for name, (id, parcels) in topics.items():
            try:
                topic = self.home.topic(name)
                self.home.store.run(topic.log.head())
            except UnknownTopic:
                topic = None
            if topic is None or topic.id != id:
                _log.warning("the topic %r was deleted before a batch could be appended to it", name)
                continue
            placed = self.home.store.run(place_staged(topic.log, parcels))
            if placed is not None:
                yield placed


def _gone(what: str) -> NotReady:
    return NotReady(
        f"a batch that was decided for was not appended for so long that what it needs was removed ({what}); "
        "`tailrace offset mark` to before it delivers it again"
    )


def _stored(key: Key, data: bytes) -> Steps[None]:
    put = Put(key, {"d": data}, (Absent(),))
    yield from guard.settle(key, lambda item: None if item is not None else (put,))
