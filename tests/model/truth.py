"""Truth: what really happened, which no actor can see; and what must hold after every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.model import rules
from tests.model.items import (
    EFFECT,
    FULL,
    HEAD,
    LAST,
    PARTITIONS,
    READER,
    SHARD,
    Entry,
    Head,
    Key,
    Offsets,
    Page,
    Record,
    Records,
    Where,
    must,
    plus,
)


class Truth:
    """The log that only successful appends extend, and other ghosts."""

    def __init__(self) -> None:
        self.log: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.bytes: dict[Where, Records] = {}
        self.chunks: dict[Record, str] = {}
        """The chunk that each record came with: one, whichever partitions it went to."""
        self.holder: tuple[str, int] | None = None
        """(life, epoch) of the last take."""
        self.sent: dict[str, int] = {}
        """What lives tell each other outside the protocol: batches sent, the page of a doubt."""
        self.handled: dict[str, int] = {}
        """The last record of each key that a group has handled."""
        self.confirmed = 0
        """How far the source of a pipeline was told."""

    # --- witnessing ---
    def witness(self, rule: Any, args: Sequence[Any], item: Any, items: Mapping[Key, Any]) -> None:
        """See a write happen."""
        if rule is rules.APPEND:
            self._appended(args[1])
        elif rule is rules.TAKE:
            self.holder = args[2], item.epoch
        elif rule is rules.RELEASE:
            self.holder = None
        elif rule is rules.COMMIT:
            must(self.holder == (args[4], args[1]), "commit by a past owner accepted")

    def _appended(self, entry: Entry) -> None:
        for partition, records in self.bytes[entry.where]:
            log = self.log[partition]
            for record in records:
                once = self.chunks.setdefault(record, entry.id) == entry.id
                must(record not in log and once, "a record twice")
                must(not any(r[0] == record[0] and r[1] > record[1] for r in log), "order of a producer broken")
                log.append(record)

    def acknowledge(self, chunk: Records, offsets: Mapping[int, int] | None) -> None:
        """A producer is told that its records are in the log, at these offsets."""
        for partition, records in chunk:
            log = self.log[partition]
            for n, record in enumerate(records):
                must(offsets is None or log[offsets[partition] + n] == record, "a wrong offset answered")
                must(any(record in log for log in self.log), "acknowledged, not in the log")

    def handle(self, record: Record) -> None:
        """A group's member handles a record: a key's records come in order, each perhaps more than once."""
        must(self.handled.get(record[0], 0) <= record[1], "order of a key broken by growing")
        self.handled[record[0]] = record[1]

    # --- checking ---
    def check(self, items: Mapping[Key, Any], objects: Mapping[Where, Records]) -> None:
        """Everything that must hold between any two steps."""
        head: Head = items[HEAD]
        must(head.nx == tuple(map(len, self.log)), "offsets not dense")
        must(head.gc <= head.gen, "gc above gen: every producer fenced for ever")
        must(len(head.e) <= FULL, "head grows without bound")
        self._check_pages(head, living_pages(items), objects)
        self._check_pipeline(items)
        effect = items[EFFECT]
        must(effect == tuple(range(len(effect))), "a message handled twice, skipped or out of order")
        must(len(effect) == items[SHARD].position, "group position went back or ahead")

    def _check_pages(self, head: Head, pages: list[Page], objects: Mapping[Where, Records]) -> None:
        at = pages[0].base if pages else head.base
        first = at
        for page in [*pages, head.as_page(v=0)]:
            joins = all(b == a or a < b <= f for a, b, f in zip(at, page.base, head.floor, strict=True))
            must(joins, "pages do not join: records lost or twice")
            at = self._check_entries(page, head.floor, objects)
        must(all(b <= f or b == 0 for b, f in zip(first, head.floor, strict=True)), "records above the floor removed")
        must(at == head.nx, "next offsets do not follow from the entries")

    def _check_entries(self, page: Page, floor: Offsets, objects: Mapping[Where, Records]) -> Offsets:
        at = page.base
        for entry in page.e:
            for q, count in entry.runs:
                if at[q] + count > floor[q]:
                    must(entry.where in objects, "committed bytes deleted")
                    right = dict(objects[entry.where])[q] == tuple(self.log[q][at[q] : at[q] + count])
                    must(right, "bytes are not the records of these offsets")
            at = plus(at, entry.runs)
        return at

    def _check_pipeline(self, items: Mapping[Key, Any]) -> None:
        if items[READER].seq:
            numbers = sorted(r[1] for log in self.log for r in log if r[0] == "source")
            must(numbers == list(range(items[READER].position)), "pipeline position and data disagree")


def living_pages(items: Mapping[Key, Any]) -> list[Page]:
    """The pages in order, without those that lie inside a merged page's range."""
    living: list[Page] = []
    for page in sorted(item for key, item in items.items() if key[0] == "log" and key[1] < LAST):
        if not living or page.first > living[-1].last:
            living.append(page)
    return living
