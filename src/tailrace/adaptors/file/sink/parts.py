"""Parts: the files that a task writes, by namespace, in a staging folder that readers skip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tailrace.adaptors.file.names import Folders
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink.disk import Disk
from tailrace.adaptors.file.sink.encoding import SUFFIX, Encoder, open_encoder, prepared
from tailrace.adaptors.file.sink.shapes import fitted, joins, shaped
from tailrace.adaptors.rows.rows import keys_of, namespace_of
from tailrace.errors import NotReady

GROUP_BYTES = 32 * 1024 * 1024
"""About how much is written at a time: a row group of Parquet."""


@dataclass(slots=True)
class Part:
    """One part file: rows that wait to be written, and its encoder once some were."""

    path: Path
    schema: pa.Schema
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    encoder: Encoder | None = None

    def takes(self, schema: pa.Schema) -> bool:
        """Whether rows of this schema fit into the file; if so, its schema grows to hold them.  Once rows were written
        its schema is fixed."""
        joined = joins(self.schema, schema)
        if joined is None or (self.encoder is not None and not joined.equals(self.schema)):
            return False
        self.schema = joined
        return True

    def flush(self, settings: FileSink) -> None:
        """Write the waiting rows as one group."""
        if not self.waiting:
            return
        if self.encoder is None:
            self.encoder = open_encoder(self.path, self.schema, settings)
        batches = [fitted(batch, self.schema) for batch in self.waiting]
        self.encoder.write(pa.concat_batches(batches) if len(batches) > 1 else batches[0])
        self.waiting, self.size = [], 0


class Parts:
    """The part files of one share.  All names have the share's `id`, so that files of several shares can be put into
    one folder."""

    def __init__(self, folder: Path, id: str, folders: Folders, settings: FileSink, disk: Disk) -> None:
        self._folder, self._id, self._folders, self._settings, self._disk = folder, id, folders, settings, disk
        self._open: dict[str, Part] = {}
        self._count = 0
        self.rows: dict[str, int] = {}
        self.files: dict[str, int] = {}
        """The sizes of the complete files, by their paths in the share's folder."""

    def add(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Write the rows of a share, in order."""
        for batch in rows:
            namespace = namespace_of(batch)
            states = self._settings.keep == "state"
            if states and not keys_of(batch):
                if not batch.num_rows:
                    continue
                raise NotReady(
                    f"{namespace} has no key, so it is not known which row of its state a change replaces; give it "
                    "one, or keep = 'changes'"
                )
            columns = prepared(shaped(batch, plain=self._settings.plain), self._settings.format)
            self.rows[namespace] = self.rows.get(namespace, 0) + batch.num_rows
            if columns.num_rows or states:
                self._add(namespace, columns)

    def _add(self, namespace: str, columns: pa.RecordBatch) -> None:
        part = self._open.get(namespace)
        if part is None or not part.takes(columns.schema):
            part = self._next(namespace, columns.schema)
        part.waiting.append(columns)
        part.size += columns.nbytes
        if part.size >= GROUP_BYTES:
            part.flush(self._settings)
        elif sum(p.size for p in self._open.values()) >= 4 * GROUP_BYTES:
            max(self._open.values(), key=lambda p: p.size).flush(self._settings)

    def _next(self, namespace: str, schema: pa.Schema) -> Part:
        """Begin the next file of a namespace, and end the one before: its rows come first."""
        if namespace in self._open:
            self._end(namespace)
        folder = self._folder / self._folders.of(namespace)
        self._disk.make_folder(folder)
        name = f"part-{self._id}-{self._count:05d}{SUFFIX[self._settings.format]}"
        self._count += 1
        part = self._open[namespace] = Part(folder / name, schema)
        return part

    def _end(self, namespace: str) -> None:
        part = self._open.pop(namespace)
        part.flush(self._settings)
        if part.encoder is not None:
            part.encoder.close()
            self._disk.sync(part.path)
            self.files[str(part.path.relative_to(self._folder))] = part.path.stat().st_size

    def close(self) -> dict[str, int]:
        """Write the waiting rows and make all files durable.  Returns how many rows each namespace has."""
        folders = {part.path.parent for part in self._open.values()}
        for namespace in list(self._open):
            self._end(namespace)
        for folder in folders:
            self._disk.sync(folder)
        return self.rows
