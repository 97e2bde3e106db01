"""Positions."""

from __future__ import annotations

import json

import pytest

from tailrace.adaptors.postgres.source.position import Cut, Point, lsn_number, lsn_text, mark


def test_places_in_the_log() -> None:
    assert lsn_number("16/B374D848") == 0x16B374D848
    assert lsn_text(0x16B374D848) == "16/B374D848"
    assert lsn_number("A/0") > lsn_number("9/FFFFFFFF")


@pytest.mark.parametrize(
    "point",
    [
        Point(7),
        Point(7, None),
        Point(7, 9, {"public.t": Cut("10:20:11,15", 30)}, ("public.u",), "1234abcd", {"public.t": "abcd1234"}),
    ],
)
def test_as_it_is_kept(point: Point) -> None:
    assert Point.read(json.loads(json.dumps(point.stored()))) == point


def test_the_plain_one_is_short() -> None:
    assert Point(0x10).stored() == {"lsn": "0/10"}


def test_what_is_past_is_forgotten() -> None:
    point = Point(10, 20, {"t": Cut("1:2:", 30)})
    assert point.at(15) == Point(15, 20, {"t": Cut("1:2:", 30)})
    assert point.at(20) == Point(20, 0, {"t": Cut("1:2:", 30)})
    assert point.at(30) == Point(30)
    assert Point(10, None).at(30).copied is None
    assert Point(10).at(5).lsn == 10


def test_marks() -> None:
    texts = (["a", "b"], ["b", "a"], ["a", "b", "c"], ["ab"], [])
    assert len({mark(some) for some in texts}) == len(texts)
    assert mark(iter(["a", "b"])) == mark(["a", "b"])


@pytest.mark.parametrize(
    ("xid", "seen"), [(9, True), (10, True), (11, False), (12, True), (15, False), (19, True), (20, False), (21, False)]
)
def test_what_a_snapshot_has_seen(xid: int, seen: bool) -> None:
    assert Cut("10:20:11,15", 0).saw(xid) is seen


def test_numbers_that_went_around() -> None:
    high = 5 * 2**32
    cut = Cut(f"{high - 5}:{high + 5}:{high - 3},{high + 2}", 0)
    assert cut.saw(2**32 - 6)
    assert cut.saw(2**32 - 4)
    assert not cut.saw(2**32 - 3)
    assert cut.saw(1)
    assert not cut.saw(2)
    assert not cut.saw(5)
