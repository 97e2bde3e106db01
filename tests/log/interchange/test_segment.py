"""Segments: their names, sizes, torn ends, and that only whole ones get their name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.errors import AlreadyThere, Damaged, DiskFull, TooLarge
from tailrace.log.interchange.entry import BATCH_BYTES, ENTRIES
from tailrace.log.interchange.segment import SegmentWriter, read_segments
from tailrace.storage.local.files import Files


def batch(first: int, last: int) -> pa.RecordBatch:
    """Entries of 37 bytes with these offsets."""
    rows = [(n, 1491252302, 0, b"key", b"value") for n in range(first, last)]
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(list(c), f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES)


def write(folder: Path, *batches: pa.RecordBatch, limit: int = 1 << 30) -> dict[str, int]:
    with SegmentWriter(folder, 0, 0, limit) as writer:
        for some in batches:
            writer.add(some)
        writer.close()
    return sizes(folder)


def sizes(folder: Path) -> dict[str, int]:
    return {path.name.lstrip("0"): path.stat().st_size for path in sorted(folder.iterdir())}


def offsets(folder: Path) -> tuple[list[int], list[str]]:
    torn: list[str] = []
    found = [n for b in read_segments(sorted(folder.glob("*.log")), torn) for n in b.column("offset").to_pylist()]
    return found, torn


def test_segments_are_named_by_their_first_offset_and_end_at_the_limit(tmp_path: Path) -> None:
    assert write(tmp_path / "a", batch(0, 5), batch(5, 6), batch(6, 8), limit=100) == {
        ".log": 74, "2.log": 74, "4.log": 74, "6.log": 74,
    }  # fmt: skip
    assert (tmp_path / "a" / "00000000000000000002.log").exists()
    assert offsets(tmp_path / "a") == ([*range(8)], [])


def test_an_entry_over_the_limit_has_a_segment_of_its_own(tmp_path: Path) -> None:
    assert write(tmp_path / "a", batch(0, 3), limit=10) == {".log": 37, "1.log": 37, "2.log": 37}


def test_the_first_offset_is_that_of_the_first_entry(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, 0, 0) as writer:
        writer.add(batch(3, 5))
        writer.add(batch(5, 6))
        writer.close()
    assert (writer.done.first, writer.done.next, writer.done.records) == (3, 6, 3)


def test_a_limit_met_exactly_is_kept(tmp_path: Path) -> None:
    assert write(tmp_path / "a", batch(0, 4), limit=74) == {".log": 74, "2.log": 74}


def test_a_segment_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), SegmentWriter(tmp_path, 0, 0, 74) as writer:
        writer.add(batch(0, 3))
        assert sizes(tmp_path) == {".log": 74, "2.part": 37}
        raise ZeroDivisionError
    assert sizes(tmp_path) == {".log": 74}


def test_what_a_killed_export_left_is_removed_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.part").write_bytes(b"half")
    assert write(tmp_path, batch(0, 1)) == {".log": 37}
    with pytest.raises(AlreadyThere, match="has segments already; choose another folder"):
        write(tmp_path, batch(0, 2))
    assert sizes(tmp_path) == {".log": 37}


def test_bytes_and_name_are_durable_before_the_next_segment(tmp_path: Path) -> None:
    told: list[str] = []

    class Watched(Files):
        def sync(self, descriptor: int) -> None:
            told.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.lstrip("0"))
            super().sync(descriptor)

        def create(self, path: Path) -> int:
            told.append("create " + path.name.lstrip("0"))
            return super().create(path)

    folder = tmp_path / "a"
    with SegmentWriter(folder, 0, 0, 37, Watched()) as writer:
        told.clear()
        writer.add(batch(0, 2))
        writer.close()
    assert told == ["create .part", "sync .part", "sync a", "create 1.part", "sync 1.part", "sync a"]


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    class Full(Files):
        def write(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with (
        pytest.raises(DiskFull, match=r"cannot write .*\.part: No space left"),
        SegmentWriter(tmp_path, 0, 0, 99, Full()) as w,
    ):
        w.add(batch(0, 1))
    assert sizes(tmp_path) == {}


def test_a_torn_end_of_the_last_segment_is_cut_and_told(tmp_path: Path) -> None:
    write(tmp_path, batch(0, 4), limit=74)
    os.truncate(tmp_path / "00000000000000000002.log", 50)
    found, torn = offsets(tmp_path)
    assert found == [0, 1, 2]
    said = "2.log: torn at 37, after the entry of offset 2; the last 13 bytes are no whole entry"
    assert [text.rpartition("0")[2] for text in torn] == [said]


def test_a_torn_end_with_a_segment_behind_it_is_damage(tmp_path: Path) -> None:
    write(tmp_path, batch(0, 4), limit=74)
    os.truncate(tmp_path / "00000000000000000000.log", 50)
    with pytest.raises(Damaged, match=r"0\.log: torn at 37, after the entry of offset 0.*more segments follow"):
        offsets(tmp_path)


def test_an_empty_segment_is_none(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    assert offsets(tmp_path) == ([], [])


def test_a_segment_under_a_wrong_name_is_damage(tmp_path: Path) -> None:
    write(tmp_path, batch(3, 4))
    (tmp_path / "00000000000000000003.log").rename(tmp_path / "00000000000000000002.log")
    with pytest.raises(Damaged, match=r"its first entry, at 0, has the offset 3, and its name says another"):
        offsets(tmp_path)


def test_segments_that_overlap_are_damage(tmp_path: Path) -> None:
    write(tmp_path / "a", batch(0, 4))
    write(tmp_path / "b", batch(2, 6))
    (tmp_path / "b" / "00000000000000000002.log").rename(tmp_path / "a" / "00000000000000000002.log")
    with pytest.raises(Damaged, match=r"2\.log: the bytes at 0, after the entry of offset 3.*its offset is 2"):
        offsets(tmp_path / "a")


# --- larger than a block
def large(offset: int, size: int) -> pa.RecordBatch:
    columns = [[offset], [0], [0], [None], [bytes(size)]]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES)


def test_entries_across_and_over_the_blocks_that_are_read(tmp_path: Path) -> None:
    sizes = [1, BATCH_BYTES - 100, 5, BATCH_BYTES, 3 * BATCH_BYTES, 7, BATCH_BYTES - 29, 2]
    write(tmp_path, *(large(n, size) for n, size in enumerate(sizes)))
    assert offsets(tmp_path) == ([*range(len(sizes))], [])
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 1)
    found, torn = offsets(tmp_path)
    assert found == [*range(len(sizes) - 1)]
    assert "torn" in torn[0]
    os.truncate(path, 3 * BATCH_BYTES)
    assert offsets(tmp_path)[0] == [0, 1, 2, 3]


def test_an_entry_that_says_it_is_larger_than_it_may_be_is_refused(tmp_path: Path) -> None:
    write(tmp_path, batch(0, 2), large(2, BATCH_BYTES + 1))
    paths = sorted(tmp_path.glob("*.log"))
    assert sum(b.num_rows for b in read_segments(paths, [], BATCH_BYTES + 1)) == 3
    with pytest.raises(TooLarge, match=f"the entry of offset 2, at 74, says that it has {BATCH_BYTES + 30:,} bytes"):
        list(read_segments(paths, [], BATCH_BYTES))


def test_zeros_over_more_than_a_block_are_a_torn_end_unless_something_follows(tmp_path: Path) -> None:
    write(tmp_path, batch(0, 2))
    (path,) = tmp_path.iterdir()
    os.truncate(path, 3 * BATCH_BYTES)
    assert offsets(tmp_path)[0] == [0, 1]
    with path.open("r+b") as file:
        file.seek(2 * BATCH_BYTES + 5)
        file.write(b"x")
    with pytest.raises(Damaged, match="the bytes at 74, after the entry of offset 1, are not an entry"):
        offsets(tmp_path)
