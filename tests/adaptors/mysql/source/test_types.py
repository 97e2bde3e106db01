"""Types: every value is the same from a copy and from the log, and is what the server has."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from tailrace.adaptors.rows.rows import messages_of
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place

pytestmark = pytest.mark.server
UTC = datetime.UTC
BOTH: list[tuple[str, str, Any]] = [
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("smallint", "-32768", -32768),
    ("smallint unsigned", "65535", 65535),
    ("mediumint", "-8388608", -8388608),
    ("mediumint unsigned", "16777215", 16777215),
    ("int", "-2147483648", -2147483648),
    ("int unsigned zerofill", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bigint unsigned", "18446744073709551615", 2**64 - 1),
    ("decimal(65,30)", "-12345678901234567890123456789012345.123456789012345678901234567891",
     Decimal("-12345678901234567890123456789012345.123456789012345678901234567891")),
    ("decimal(10,2) unsigned", "99999999.99", Decimal("99999999.99")),
    ("decimal(5,0)", "-99999", Decimal(-99999)),
    ("decimal(3,3)", "-0.001", Decimal("-0.001")),
    ("decimal(20,9)", "-0.000000001", Decimal("-0.000000001")),
    ("float", "16777215", 16777215.0),
    ("float", "1.1754944e-38", 1.1754943508222875e-38),
    ("double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("double", "-0.1", -0.1),
    ("double", "123456789012345680000", 123456789012345680000.0),
    ("year", "2155", 2155),
    ("year", "0", 0),
    ("bit(1)", "b'1'", True),
    ("bit(17)", "b'10000000000000001'", 65537),
    ("bit(64)", "b'1111111111111111111111111111111111111111111111111111111111111111'", 2**64 - 1),
    ("date", "'1000-01-01'", datetime.date(1000, 1, 1)),
    ("date", "'9999-12-31'", datetime.date(9999, 12, 31)),
    ("date", "'1969-12-31'", datetime.date(1969, 12, 31)),
    ("date", "'0000-00-00'", "0000-00-00"),
    ("date", "'2024-02-00'", "2024-02-00"),
    ("datetime", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
    ("datetime", "'1000-01-01 00:00:00'", datetime.datetime(1000, 1, 1)),
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("datetime(3)", "'1969-12-31 23:59:59.007'", datetime.datetime(1969, 12, 31, 23, 59, 59, 7000)),
    ("datetime(1)", "'2024-02-29 12:00:00.5'", datetime.datetime(2024, 2, 29, 12, 0, 0, 500000)),
    ("timestamp NULL", "'1970-01-01 00:00:01'", datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ("timestamp(6) NULL", "'2038-01-19 03:14:07.999999'",
     datetime.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)),
    ("timestamp NULL", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
    ("timestamp(2) NULL", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00.00"),
    ("time", "'23:59:59'", datetime.time(23, 59, 59)),
    ("time", "'838:59:59'", "838:59:59"),
    ("time", "'-838:59:59'", "-838:59:59"),
    ("time(6)", "'-00:00:00.000001'", "-00:00:00.000001"),
    ("time(3)", "'-12:34:56.789'", "-12:34:56.789"),
    ("time(2)", "'12:34:56.78'", datetime.time(12, 34, 56, 780000)),
    ("char(10)", "'ab  '", "ab"),
    ("varchar(10)", "'ab  '", "ab  "),
    ("varchar(300)", "REPEAT('ä', 300)", "ä" * 300),
    ("varchar(10) CHARACTER SET latin1", "_utf8mb4'€ÿ'", "€ÿ"),
    ("varchar(10) CHARACTER SET utf16", "'🎈x'", "🎈x"),
    ("varchar(10) CHARACTER SET sjis", "'テスト'", "テスト"),
    ("varchar(10) CHARACTER SET cp1251", "'Ж'", "Ж"),
    ("text", "'\U0001f388 and \\0 NUL'", "\U0001f388 and \0 NUL"),
    ("tinytext", "''", ""),
    ("mediumtext", "REPEAT('x', 70000)", "x" * 70000),
    ("longtext", "'x'", "x"),
    ("binary(4)", "X'0100'", b"\1\0\0\0"),
    ("varbinary(300)", "X'00FF00'", b"\0\xff\0"),
    ("blob", "X'00FF80'", b"\0\xff\x80"),
    ("longblob", "REPEAT(X'80', 70000)", b"\x80" * 70000),
    ("enum('a','b''s','ü')", "'b''s'", "b's"),
    ("enum('a','b''s','ü')", "3", "ü"),
    ("enum('a','b') CHARACTER SET latin1", "'b'", "b"),
    ("set('a','b','ü')", "'a,ü'", "a,ü"),
    ("set('a','b','c')", "''", ""),
    ("geometry", "ST_GeomFromText('POINT(1 2)')",
     b"\0\0\0\0\1\1\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@"),
    ("int GENERATED ALWAYS AS (1 + 1) VIRTUAL", "", 2),
    ("varchar(20) GENERATED ALWAYS AS (CONCAT('a', 'b')) STORED", "", "ab"),
]  # fmt: skip
JSON = [
    '{"a": 1, "b": [1, 2, {"c": null}], "": ""}',
    "[18446744073709551615, -9223372036854775808, 123456789012345678901234567890]",
    "[1.0, 0.1, -1.5, 1e100, 1.7976931348623157e308, 5e-324, 1e15, 123456789012345680000, 1e-7, 0.0001, 100000.5]",
    '["\\u0000\\u001f", "quote\\"s", "back\\\\slash", "\U0001f388", "/", "line\\n"]',
    '"text"', "null", "true", "12", "-0.0", "[]", "{}", "[[[[[]]]]]", "65536", "4294967296", "-32769", "1e-15", "2e16",
    '{"long": "' + "x" * 70000 + '", "n": 70000}',
]  # fmt: skip
EXPRESSIONS = [
    "CAST(CAST('12345678901234567890.123456789' AS DECIMAL(30,9)) AS JSON)",
    "JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-12:34:56.5' AS TIME(1)))",
    "JSON_OBJECT('dt', TIMESTAMP'2024-01-01 01:02:03')",
    "JSON_ARRAY(X'00FF', b'101')",
    "JSON_ARRAY(CAST('-0.50' AS DECIMAL(5,2)))",
]


def table(cases: list[tuple[str, str, Any]]) -> tuple[str, str]:
    """A table with a column for each case, and what inserts them."""
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(cases))
    given = [(n, sql) for n, (_, sql, _) in enumerate(cases) if sql]
    insert = f"INSERT INTO t (id, {', '.join(f'c{n}' for n, _ in given)}) VALUES (%d, {', '.join(s for _, s in given)})"
    return f"CREATE TABLE t (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4", insert


def documents(drive: Drive) -> list[dict[str, Any]]:
    return [m.data for batch in drive.batches for m in messages_of(batch)]


def test_every_value_from_a_copy_and_from_the_log(source: Place) -> None:
    create, insert = table(BOTH)
    source.run(create, insert % 1)
    with Drive(source, "t") as drive:
        drive.begin()
        source.run(insert % 2, "INSERT INTO t (id) VALUES (3)", "UPDATE t SET id = 4 WHERE id = 1", insert % 1)
        drive.copy()
        drive.follow()
        drive.assert_same()
        for data in documents(drive):
            if data["id"] == 3:
                continue
            for n, (kind, sql, value) in enumerate(BOTH):
                found = data[f"c{n}"]
                assert found == value, (kind, sql, found)
                assert type(found) is type(value), (kind, sql, found)
        assert len([data for data in documents(drive) if data["id"] == 2]) == 2
        nulls = [data for data in documents(drive) if data["id"] == 3]
        assert nulls
        for data in nulls:
            for n, (_, sql, _) in enumerate(BOTH):
                assert data[f"c{n}"] is None or not sql, n
        names = {(f.name, f.metadata[b"mysql"]) for b in drive.batches for f in b.schema.field("data").type}
        geometry = next(n for n, case in enumerate(BOTH) if case[0] == "geometry")
        assert len({name for name, _ in names if name != f"c{geometry}"}) == len(
            {pair for pair in names if pair[0] != f"c{geometry}"}
        ), "the copy and the log name a type in two ways"


def test_json_is_the_same_text(source: Place) -> None:
    """Of a table without a key the row is the id, so every character counts."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, j json)")
    with Drive(source, "t") as drive:
        drive.begin()
        values = JSON if source.server.flavor == "mysql" else JSON[:4]
        source.many("INSERT INTO t VALUES (%s, %s)", list(enumerate(values)))
        if source.server.flavor == "mysql":
            for n, expression in enumerate(EXPRESSIONS):
                source.run(f"INSERT INTO t VALUES ({1000 + n}, {expression})")
        drive.follow()
        drive.assert_same()
        assert len(documents(drive)) == len(values) + (len(EXPRESSIONS) if source.server.flavor == "mysql" else 0)


def test_doubles_of_json(source: Place) -> None:
    if source.server.flavor == "mariadb":
        pytest.skip("its JSON is text")
    source.run("CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, j json)")
    numbers = [m * 10.0**e for e in range(-20, 25) for m in (1, 1.5, 1.23456789, 9.87654321012345678, -3)]
    numbers += [1 / 3, math.pi, 2.0**60, 2.0**-60, 1e22, 1e23, 123456.789e3]
    with Drive(source, "t") as drive:
        drive.begin()
        source.many("INSERT INTO t (j) VALUES (%s)", [[repr(float(n))] for n in numbers])
        drive.follow()
        drive.assert_same()


def test_zero_dates_as_null(source: Place) -> None:
    source.run(
        "CREATE TABLE t (id date PRIMARY KEY, d date, x datetime(3), n timestamp NULL)",
        "INSERT INTO t VALUES ('0000-00-00', '0000-00-00', '2024-00-01', '0000-00-00'), ('2024-01-01', '2024-01-02', "
        "'2024-01-03', '2024-01-04')",
    )
    with Drive(source, "t", zero_dates="null") as drive:
        drive.begin()
        drive.copy()
        source.run("UPDATE t SET d = '2024-02-00' WHERE id = '0000-00-00'")
        drive.follow()
        drive.assert_same()
        bad, good = (drive.held.keyed[f"{source.name}.t"][id] for id in ("0000-00-00", "2024-01-01"))
        assert (bad["id"], bad["d"], bad["x"], bad["n"]) == ("0000-00-00", None, None, None)
        assert good["d"] == datetime.date(2024, 1, 2)


def test_types_of_mariadb(source: Place) -> None:
    if source.server.flavor == "mysql":
        pytest.skip("it has none of these")
    source.run("CREATE TABLE t (id uuid PRIMARY KEY, a inet6, b inet4, c uuid)")
    ids = "123e4567-e89b-12d3-a456-426655440000", "0189a5f0-7b6c-7d3e-8f00-00000000000a"
    values = f"'{ids[0]}', '::ffff:1.2.3.4', '10.0.0.1', '{ids[1]}'"
    with Drive(source, "t") as drive:
        drive.begin()
        source.run(f"INSERT INTO t VALUES ({values})", "INSERT INTO t VALUES (UUID(), '2001:db8::', '0.0.0.0', NULL)")
        drive.follow()
        drive.assert_same()
        (found,) = [data for data in documents(drive) if data["c"]]
        assert found["id"] == "123e4567-e89b-12d3-a456-426655440000"
