"""Parquet files of others: what their pages need is known before they are decoded, every type comes out as it is."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.adaptors.file.source.bounded import pieces, written_out
from tailrace.adaptors.file.source.parquet import parquet_batches
from tailrace.adaptors.file.source.parquet_pages import columns_of
from tailrace.errors import BadInput

EVERY = pa.table(
    {
        "number": [1, None, 3],
        "text": ["a", "b", None],
        "bytes": [b"x", b"y", b"x"],
        "texts": pa.array([["q", "w"], [], None]),
        "nested": pa.array([{"x": "1", "y": [b"1"]}, None, {"x": None, "y": None}]),
        "large": pa.array(["a", "b", None], pa.large_string()),
        "view": pa.array(["a", "b", None], pa.string_view()),
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "json": pa.array(['{"a":1}', "2", None], pa.json_()),
        "map": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "decimal": pa.array([1, 2, None], pa.decimal128(30, 2)),
        "nothing": pa.nulls(3),
    }
)


def written(table: pa.Table, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_every_type_comes_out_as_it_is(version: str, compression: str, dictionary: bool) -> None:
    file = written(EVERY, data_page_version=version, compression=compression, use_dictionary=dictionary)
    found = pa.Table.from_batches(list(parquet_batches(file, "a file", 2)))
    assert found.to_pylist() == EVERY.to_pylist()
    kept = [name for name in EVERY.schema.names if name != "view"]
    assert found.select(kept).schema.types == EVERY.select(kept).schema.types


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_headers_of_pages_say_what_is_in_them(version: str) -> None:
    table = pa.table(
        {"n": range(100_000), "l": [[n, n] for n in range(100_000)], "s": [str(n % 9) for n in range(100_000)]}
    )
    file = written(table, data_page_version=version, row_group_size=60_000, data_page_size=10_000)
    metadata = pq.ParquetFile(file)
    for n, rows in enumerate((60_000, 40_000)):
        group = metadata.metadata.row_group(n)
        number, lists, text = columns_of(file, metadata.schema, group, "a file")
        assert [sum(p.values for p in c.pages if not p.is_dictionary) for c in (number, lists, text)] == [
            rows, 2 * rows, rows,
        ]  # fmt: skip
        assert len(number.pages) > 5
        assert (number.lists, lists.lists, text.lists) == (False, True, False)
        assert text.dictionary > 0
        assert number.needs(1) < number.needs(10_000) < number.needs(rows)
        assert number.needs(rows) >= sum(page.uncompressed for page in number.pages)


def test_a_batch_is_halved_until_its_pieces_are_small() -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array([bytes(10_000)]))
    batch = pa.record_batch({"a": shared, "n": range(1000)})
    assert written_out(batch.column(0)) >= 10_000_000
    some = list(pieces(batch, 100_000))
    assert pa.Table.from_batches(some).equals(pa.Table.from_batches([batch]))
    assert max(sum(map(written_out, one.columns)) for one in some) <= 100_000


@pytest.mark.parametrize("cut", [0, 3, 100, 1000])
def test_a_damaged_file_is_refused(cut: int) -> None:
    data = bytearray(written(EVERY).getvalue())
    data[4 + cut : 4 + cut + 40] = b"\xff" * 40
    with suppress(BadInput):  # some bytes do not matter
        list(parquet_batches(io.BytesIO(bytes(data)), "rows.parquet", 10))
