"""GTID sets, without a server."""

from __future__ import annotations

import pytest

from tailrace.adaptors.mysql.gtid import DomainPlace, Gtid, GtidSet
from tailrace.errors import NotReady

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"


def test_a_set_grows_in_any_order() -> None:
    found = GtidSet()
    for number in (1, 2, 5, 4, 9, 3, 3):
        found.add(Gtid(A, number))
    assert str(found) == f"{A}:1-5:9"
    found.add(Gtid(B, 7))
    assert str(found) == f"{A}:1-5:9,{B}:7"
    assert str(GtidSet(str(found).upper().replace(",", ",\n"))) == str(found)


def test_what_a_set_covers() -> None:
    large, small = GtidSet(f"{A}:1-5:8-9,{B}:1"), GtidSet(f"{A}:2-4:9")
    assert large.covers(small)
    assert not small.covers(large)
    assert large.covers(GtidSet())
    assert large.has(Gtid(A, 8))
    assert not large.has(Gtid(A, 6))
    assert not large.has(Gtid(B, 2))
    assert not large.covers(GtidSet(f"{A}:5-8"))
    assert str(small.joined(GtidSet(f"{A}:5-8,{B}:3"))) == f"{A}:2-9,{B}:3"
    assert str(small) == f"{A}:2-4:9"


def test_a_set_as_the_protocol_has_it() -> None:
    data = GtidSet(f"{A}:1-5:8").encoded()
    assert len(data) == 8 + 16 + 8 + 2 * 16
    assert data[32:48] == (1).to_bytes(8, "little") + (6).to_bytes(8, "little")


def test_a_tag_is_refused() -> None:
    with pytest.raises(NotReady, match="tag"):
        GtidSet(f"{A}:blue:1-5")


def test_a_place_of_domains() -> None:
    found = DomainPlace("0-1-270,1-5-12")
    found.add(Gtid("0-2", 271))
    assert str(found) == "0-2-271,1-5-12"
    assert found.has(Gtid("0-1", 270))
    assert not found.has(Gtid("0-1", 272))
    assert not found.has(Gtid("7-1", 1))
    assert found.covers(DomainPlace("0-1-271"))
    assert not found.covers(DomainPlace("2-1-1"))
    assert found.covers(DomainPlace(""))


def test_the_place_before_a_transaction() -> None:
    assert str(GtidSet(f"{A}:1-5:8").before(Gtid(A, 3))) == f"{A}:1-2:4-5:8"
    assert str(GtidSet(f"{A}:1-5:8").before(Gtid(A, 8))) == f"{A}:1-5"
    assert str(GtidSet(f"{A}:1").before(Gtid(A, 1))) == ""
    assert str(DomainPlace("0-1-270,1-5-12").before(Gtid("1-5", 12))) == "0-1-270,1-5-11"
    assert str(DomainPlace("0-1-1,1-5-12").before(Gtid("0-1", 1))) == "1-5-12"
