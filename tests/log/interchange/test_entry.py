"""The entry bytes: the vectors of the format, torn ends and damage."""

from __future__ import annotations

import re
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import Damaged
from tailrace.log.interchange.entry import ENTRIES, decode, encode, joined
from tailrace.log.record import MAX_TIMESTAMP, Mode, Op, attributes

VECTOR = bytes.fromhex("0000000000000000 00000010 0000000058e2b44e 00 00000003 6b6579 00000005 76616c7565")
SYNC_DELETE = attributes(Mode.SYNC, Op.DELETE)


def batch(*rows: tuple[int, int, int, bytes | None, bytes | None]) -> pa.RecordBatch:
    """(offset, timestamp, attributes, key, value) rows."""
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    return pa.record_batch([pa.array(list(c), f.type) for c, f in zip(columns, ENTRIES, strict=True)], schema=ENTRIES)


def bytes_of(*rows: tuple[int, int, int, bytes | None, bytes | None]) -> bytes:
    return bytes(joined(encode(batch(*rows))))


def three() -> bytes:
    return bytes_of(*((n, 1491252302, 0, b"key", b"value") for n in range(3)))


def test_the_vector() -> None:
    assert bytes_of((0, 1491252302, 0, b"key", b"value")) == VECTOR
    assert len(VECTOR) == 37
    assert decode(VECTOR) == (batch((0, 1491252302, 0, b"key", b"value")), 37)


def test_sync_and_delete_are_nine() -> None:
    assert bytes_of((0, 1491252302, SYNC_DELETE, b"key", b"value"))[20] == 0x09


def test_empty_key_and_data_are_legal_and_are_not_null() -> None:
    rows = ((0, 0, 0, b"", b""), (1, 0, 0, None, b""), (2, 0, 0, b"", None), (3, 0, 0, None, None))
    data = bytes_of(*rows)
    assert len(data) == 4 * 29
    assert [data[n * 29 + 20] for n in range(4)] == [0x00, 0x20, 0x40, 0x60]
    assert decode(data)[0] == batch(*rows)


@pytest.mark.parametrize(("cut", "whole"), [(74, 2), (75, 2), (82, 2), (95, 2), (110, 2), (111, 3)])
def test_a_torn_end_is_cut_at_the_last_whole_entry(cut: int, whole: int) -> None:
    found, at = decode(three()[:cut])
    assert (found.num_rows, at) == (whole, whole * 37)


def test_room_that_was_never_written_is_a_torn_end() -> None:
    found, at = decode(three() + bytes(100))
    assert (found.num_rows, at) == (3, 111)


@pytest.mark.parametrize(
    ("position", "value", "why"),
    [
        (7, 0, "its offset is 0"),
        (0, 0x80, "its offset is 9223372036854775809"),
        (8, 1, "lengths"),
        (11, 17, "lengths"),
        (11, 7, "lengths"),
        (12, 1, "after the year 9999"),
        (20, 0x03, "its attributes are 0x03"),
        (20, 6 << 2, "its attributes are 0x18"),
        (20, 0x80, "its attributes are 0x80"),
        (20, 0x20, "lengths"),
        (20, 0x40, "lengths"),
        (21, 1, "lengths"),
        (24, 4, "lengths"),
        (28, 1, "lengths"),
        (31, 6, "lengths"),
    ],
)
def test_damage_inside_names_file_position_and_offset(position: int, value: int, why: str) -> None:
    data = bytearray(three())
    data[37 + position] = value
    why = why.replace("lengths", "do not agree")
    said = rf"some\.log: the bytes at 37, after the entry of offset 0, are not an entry: .*{re.escape(why)}"
    with pytest.raises(Damaged, match=said) as caught:
        decode(bytes(data), where="some.log")
    assert (caught.value.where, caught.value.position) == ("some.log", 37)


def test_a_damaged_length_is_not_taken_for_a_torn_end() -> None:
    """An entry that claims to reach beyond the file would hide all that follow it."""
    data = bytearray(three())
    data[8:12] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(Damaged, match="the bytes at 0, at the beginning"):
        decode(bytes(data))


def test_offsets_rise_and_may_have_gaps() -> None:
    rows = ((5, 0, 0, b"a", b"1"), (9, 0, 0, b"b", b"2"))
    assert decode(bytes_of(*rows))[0] == batch(*rows)
    with pytest.raises(Damaged, match="its offset is 5"):
        decode(bytes_of(*rows), last=5)


def test_entries_come_in_portions() -> None:
    data, at, offsets = three(), 0, []
    while at < len(data):
        found, at = decode(data, at, offsets[-1] if offsets else -1, most=1)
        offsets += found.column("offset").to_pylist()
    assert offsets == [0, 1, 2]
    assert decode(data, at, 2) == (batch(), 111)


def test_a_slice_of_a_larger_batch_is_encoded_alone() -> None:
    whole = batch(*((n, n, 0, b"k%d" % n, None if n % 2 else b"v%d" % n) for n in range(10)))
    assert decode(bytes(joined(encode(whole.slice(3, 4)))))[0] == whole.slice(3, 4)
    entries = encode(whole)
    assert bytes(joined(entries.slice(3, 4))) == bytes(joined(encode(whole.slice(3, 4))))


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**63 - 1),
        st.integers(0, MAX_TIMESTAMP),
        st.builds(attributes, st.sampled_from(Mode), st.sampled_from(Op)),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
    ),
    unique_by=lambda row: row[0],
    max_size=8,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@unhurried
@given(ROWS)
def test_what_is_encoded_is_decoded(rows: list[tuple[int, int, int, bytes | None, bytes | None]]) -> None:
    data = bytes_of(*rows)
    assert len(data) == sum(29 + len(k or b"") + len(v or b"") for *_, k, v in rows)
    assert decode(data) == (batch(*rows), len(data))


@unhurried
@given(ROWS, st.data())
def test_a_cut_anywhere_keeps_every_whole_entry(
    rows: list[tuple[int, int, int, bytes | None, bytes | None]], pick: st.DataObject
) -> None:
    data = bytes_of(*rows)
    cut = pick.draw(st.integers(0, len(data)))
    ends = [len(bytes_of(*rows[: n + 1])) for n in range(len(rows))]
    whole = sum(end <= cut for end in ends)
    found, at = decode(data[:cut])
    assert found == batch(*rows[:whole])
    assert at == ([0, *ends])[whole]


@unhurried
@given(st.data())
def test_one_changed_byte_is_damage_or_other_content_never_a_lost_entry(pick: st.DataObject) -> None:
    """There is no checksum, but the lengths hold each other: a changed byte cannot make entries vanish in silence."""
    data = bytearray(three())
    data[pick.draw(st.integers(0, len(data) - 1))] ^= pick.draw(st.integers(1, 255))
    with suppress(Damaged):
        found, at = decode(bytes(data))
        assert (found.num_rows, at) == (3, 111)
