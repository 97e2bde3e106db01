"""Joining: many small runs of records as a few large ones.

Where changes come one by one, each was fetched as a run of its own, and whatever is done with a run costs more than
what is done with its one row.  Runs of a namespace keep their order; those of different ones pass each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.adaptors.rows import namespace_of
from tailrace.log.fetched import Fetched

ROWS = 65_536
BYTES = 8 * 1024 * 1024
"""At most about so much is joined; what is half of it already goes on as it is."""
HELD = 4 * BYTES
"""Bytes that wait, of all namespaces."""


@dataclass(slots=True)
class _Run:
    """Neighbours of a namespace, with one schema."""

    parts: list[Fetched] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def takes(self, fetched: Fetched, size: int) -> bool:
        alike = not self.parts or self.parts[0].data.schema.equals(fetched.data.schema, check_metadata=True)
        return alike and self.rows + fetched.data.num_rows <= ROWS and self.size + size <= BYTES

    def add(self, fetched: Fetched, size: int) -> None:
        self.parts.append(fetched)
        self.rows += fetched.data.num_rows
        self.size += size

    def whole(self) -> Fetched:
        first = self.parts[0]
        if len(self.parts) == 1:
            return first
        offsets = pa.concat_arrays([part.offsets for part in self.parts])
        return Fetched(first.partition, first.offset, pa.concat_batches([part.data for part in self.parts]), offsets)


def joined(some: Iterable[Fetched]) -> Iterator[Fetched]:
    """The same records of one partition, in fewer runs."""
    waiting: dict[str, _Run] = {}
    held = 0
    for fetched in some:
        name, size = namespace_of(fetched.data), int(fetched.data.nbytes)
        large = fetched.data.num_rows >= ROWS // 2 or size >= BYTES // 2
        if name in waiting and (large or not waiting[name].takes(fetched, size)):
            run = waiting.pop(name)
            held -= run.size
            yield run.whole()
        if large:
            yield fetched
            continue
        waiting.setdefault(name, _Run()).add(fetched, size)
        held += size
        if held >= HELD:
            yield from (run.whole() for run in waiting.values())
            waiting, held = {}, 0
    yield from (run.whole() for run in waiting.values())
