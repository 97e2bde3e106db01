"""Files as source and sink: the contracts, for each format."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.adaptors.file.settings import FileSink, FileSource
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.file.source.reader import FileReader
from tailrace.testing.adaptorcontract import ReaderContract, WriterContract


class Lines:
    """A file that grows line by line."""

    namespace = "orders"

    def __init__(self, folder: Path, format: str) -> None:
        self.path, self.format = folder / f"orders.{format}", format
        self.path.write_text("id,text\n" if format == "csv" else "")

    def reader(self) -> FileReader:
        return FileReader(FileSource(path=str(self.path), keys=("id",), poll_seconds=0.01))

    def add(self, documents: Sequence[dict[str, Any]]) -> None:
        with self.path.open("a", newline="") as file:
            if self.format == "csv":
                csv.writer(file).writerows([d["id"], d["text"]] for d in documents)
            else:
                file.writelines(json.dumps(d) + "\n" for d in documents)


class Folder:
    """A folder that gets new Parquet files, of several row groups."""

    namespace = "orders"

    def __init__(self, folder: Path) -> None:
        self.path, self.count = folder, 0
        (folder / "orders").mkdir()
        self.add([])

    def reader(self) -> FileReader:
        return FileReader(FileSource(path=str(self.path), keys=("id",), poll_seconds=0.01))

    def add(self, documents: Sequence[dict[str, Any]]) -> None:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        name = self.path / "orders" / f"{self.count:03d}.parquet"
        pq.write_table(pa.Table.from_pylist(list(documents), schema), name, row_group_size=7)
        self.count += 1


@pytest.mark.parametrize("format", ["jsonl", "csv"])
class TestLines(ReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path, format: str) -> Lines:
        return Lines(tmp_path, format)


class TestParquet(ReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path)


class ParquetSink:
    namespace = "public.orders"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "out"

    def writer(self) -> FileWriter:
        return FileWriter(FileSink(path=str(self.path)))

    def documents(self) -> list[dict[str, Any]]:
        return current(self.path, self.namespace) if (self.path / self.namespace).is_dir() else []


class TestParquetSink(WriterContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> ParquetSink:
        return ParquetSink(tmp_path)
