"""Widening: a column that is wider at the source becomes so in the sink, if nothing is lost."""

from __future__ import annotations

import pytest

from tailrace.adaptors.mysql.sink.widening import rounds, widens

WIDER = [
    ("tinyint", "int"),
    ("int unsigned", "bigint"),
    ("float", "double"),
    ("varchar(3)", "varchar(5)"),
    ("varchar(63)", "tinytext"),
    ("varchar(1000)", "text"),
    ("varchar(20000)", "mediumtext"),
    ("varbinary(255)", "tinyblob"),
    ("varbinary(60000)", "blob"),
    ("tinytext", "text"),
    ("decimal(4,2)", "decimal(6,4)"),
    ("datetime", "datetime(6)"),
    ("enum('a')", "enum('a','b')"),
]
NOT_WIDER = [
    ("int", "int"),
    ("int", ""),
    ("int", "int unsigned"),
    ("varchar(1000)", "tinytext"),
    ("varchar(64)", "tinytext"),
    ("varchar(20000)", "text"),
    ("varbinary(256)", "tinyblob"),
    ("varchar(9)", "tinyblob"),
    ("decimal(6,2)", "decimal(6,4)"),
    ("datetime", "timestamp(6)"),
    ("enum('a')", "enum('b','a')"),
]


@pytest.mark.parametrize(("now", "wanted"), WIDER)
def test_what_is_wider(now: str, wanted: str) -> None:
    assert widens(now, wanted)
    assert not widens(wanted, now)


@pytest.mark.parametrize(("now", "wanted"), NOT_WIDER)
def test_what_is_not(now: str, wanted: str) -> None:
    assert not widens(now, wanted)


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("float", "double"),
        ("int", "double"),
        ("int", "decimal(5,2)"),
        ("decimal(10,2)", "double"),
        ("float", "decimal(20,5)"),
        ("double", "decimal(20,5)"),
        ("double", "bigint"),
        ("float", "int unsigned"),
        ("date", "datetime"),
        ("time(6)", "datetime(6)"),
        ("time", "timestamp"),
        ("datetime", "timestamp(3)"),
        ("decimal(6,2)", "decimal(6,4)"),
    ],
)
def test_what_is_rounded_without_a_word(here: str, source: str) -> None:
    assert rounds(here, source)


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("double", "float"),
        ("double", "int"),
        ("double", "decimal(15,2)"),
        ("float", "mediumint unsigned"),
        ("float", "float"),
        ("bigint", "decimal(5,0)"),
        ("datetime(6)", "timestamp(6)"),
        ("decimal(6,4)", "decimal(6,2)"),
        ("time(6)", "time"),
        ("varchar(3)", "varchar(9)"),
    ],
)
def test_what_is_kept_or_refused(here: str, source: str) -> None:
    assert not rounds(here, source)
