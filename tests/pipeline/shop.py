"""A toy shop: pipelines from and to toys, commit logs that are filled by hand, and what sinks were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode
from tailrace.pipeline.define.definition import Definition, SinkDefinition, SourceDefinition
from tailrace.pipeline.deliver.offsets import Mark, override
from tailrace.pipeline.ingest.commit_log import CommitLog
from tests.pipeline.toys import batches


def definition(path: Path, *sinks: SinkDefinition, partitions: int = 2, **source: Any) -> Definition:
    """A pipeline in a folder; settings of the source as in toys."""
    end = SourceDefinition("tests.pipeline.toys:source", source)
    return Definition("shop", str(path / "home"), end, sinks, partitions=partitions, piece_rows=100)


def sink(
    path: Path,
    name: str = "c0",
    namespace: str = ".*",
    on_error: Any = "stop",
    functions: Any = (),
    redeliver: Any = "halves",
    **settings: Any,
) -> SinkDefinition:
    """Into a folder of its own; settings as in toys."""
    given = {"path": str(path / name), **settings}
    kind = "tests.pipeline.toys:sink"
    return SinkDefinition(name, kind, given, namespace, functions, on_error, redeliver=redeliver)


def filled(path: Path, keys: str, **marks: int) -> None:
    """A commit log of one partition with a message for each letter, which is its namespace; and where writers are."""
    with tailrace.open(path / "home") as home:
        log = CommitLog(home, "shop", partitions=1)
        log.begin(0)
        for n, key in enumerate(keys):
            columns = pa.record_batch({"id": pa.array([n]), "v": pa.array([key])})
            log.take_in([make_rows(key, columns, ["id"], mode=Mode.SYNC, timestamp=1000 + n)], 0)
        for writer, low in marks.items():
            home.store.run(override("shop", writer, 0, Mark(low)))


def ids(path: Path) -> list[list[int]]:
    """The ids of each batch."""
    return [[int(row[1]) for row in batch] for batch in batches(path)]


def flat(path: Path) -> list[int]:
    """The ids, in order."""
    return [id for batch in ids(path) for id in batch]
