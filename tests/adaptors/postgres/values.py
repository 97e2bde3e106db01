"""Every type of PostgreSQL, with values that are hard to carry: (type, texts)."""

from __future__ import annotations

SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'very "happy"');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN small AS int CHECK (VALUE < 1000);
CREATE DOMAIN price AS numeric(7,2);
CREATE DOMAIN nice_mood AS mood;
"""

BUILT_IN: list[tuple[str, list[str]]] = [
    ("boolean", ["t", "f"]),
    ("smallint", ["-32768", "32767"]),
    ("integer", ["-2147483648", "2147483647", "0"]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    ("real", ["1.1", "NaN", "Infinity", "-Infinity", "3.4028235e+38", "1e-45", "-0"]),
    ("double precision", ["0.1", "NaN", "Infinity", "-Infinity", "1.7976931348623157e+308", "5e-324", "-0"]),
    ("numeric", ["1.5000", "NaN", "Infinity", "-Infinity", "123456789" * 30 + ".000000000000000000012300", "-0.0001"]),
    ("numeric(10,2)", ["12345678.90", "-0.01", "NaN", "0"]),
    ("numeric(38,10)", ["1234567890123456789012345678.0123456789", "-1"]),
    ("numeric(76,20)", ["9" * 56 + "." + "1" * 20, "-3.5"]),
    ("numeric(100,50)", ["9" * 50 + "." + "1" * 50]),
    ("numeric(3,-2)", ["12300", "-99900"]),
    ("numeric(2,5)", ["0.00099"]),
    ("text", ["", "plain", "ünï😀", "tab\tnew\nline\\back'quote\"", "  spaces  ", "NULL", "\x01\x1f\x1b"]),
    ("character varying", ["abc "]),
    ("character varying(20)", ["twenty characters is"]),
    ("character(5)", ["ab   ", "abcde", "     "]),
    ('"char"', ["x"]),
    ("name", ["pg_class"]),
    ("bytea", ["\\x", "\\x00ff10", "\\x5c78"]),
    ("date", ["2024-02-29", "0001-01-01", "9999-12-31", "infinity", "-infinity", "4713-01-01 BC", "10000-01-01"]),
    ("time without time zone", ["12:34:56.789012", "00:00:00", "24:00:00"]),
    ("time(3) without time zone", ["01:02:03.004"]),
    ("time with time zone", ["12:00:00+02", "23:59:59.999999-15:59"]),
    ("timestamp without time zone", ["2024-01-01 12:34:56.789012", "infinity", "-infinity", "0044-03-15 12:00:00 BC",
                                     "294276-12-31 23:59:59.999999", "0001-01-01 00:00:00"]),
    ("timestamp(0) without time zone", ["1999-12-31 23:59:59"]),
    ("timestamp with time zone", ["2024-01-01 12:34:56.789012+05:30", "infinity", "-infinity",
                                  "1883-11-18 12:03:58+00"]),
    ("interval", ["1 year 2 mons -3 days 04:05:06.789", "00:00:00", "-1 day +01:00:00", "178000000 years"]),
    ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("json", ['{"a":  1, "a": [null, 1e500, "\\u00e9"]}', "null", '"text"', "1"]),
    ("jsonb", ['{"b": 1.10, "a": {"x": []}}', "null", '"text"', "123456789012345678901234567890.5"]),
    ("inet", ["192.168.0.1", "10.1.2.3/8", "::1", "2001:db8::/32"]),
    ("cidr", ["10.0.0.0/8", "2001:db8::/32"]),
    ("macaddr", ["08:00:2b:01:02:03"]),
    ("macaddr8", ["08:00:2b:01:02:03:04:05"]),
    ("money", ["$1,234.56", "-$0.01"]),
    ("bit(3)", ["101"]),
    ("bit varying", ["", "10101"]),
    ("tsvector", ["'a':1A 'cat':2,3B"]),
    ("tsquery", ["'fat' & ( 'rat' | 'cat':AB )"]),
    ("point", ["(1.5,-2)"]),
    ("line", ["{1,2,3}"]),
    ("lseg", ["[(1,2),(3,4)]"]),
    ("box", ["(3,4),(1,2)"]),
    ("path", ["[(1,2),(3,4)]", "((1,2),(3,4))"]),
    ("polygon", ["((1,2),(3,4),(5,6))"]),
    ("circle", ["<(1,2),3>"]),
    ("int4range", ["[1,5)", "empty", "(,)"]),
    ("numrange", ["[1.10,2.200]"]),
    ("tstzrange", ['["2024-01-01 00:00:00+00",infinity)']),
    ("int4multirange", ["{[1,3),[5,7)}", "{}"]),
    ("oid", ["0", "4294967295"]),
    ("pg_lsn", ["16/B374D848"]),
    ("xid8", ["18446744073709551615"]),
    ("jsonpath", ['$."a"[*]?(@ > 1)']),
    ("integer[]", ["{1,NULL,-3}", "{}", "{{1,2},{3,4}}", "[0:1]={7,8}"]),
    ("text[]", ['{a,NULL,"NULL","","a b","quote\\"back\\\\slash","x,y","{z}"}', "{}", '{{"a b"},{c}}']),
    ("numeric(10,2)[]", ["{1.50,NULL,-2.00}", "{NaN}"]),
    ("numeric[]", ["{1.500,NaN}"]),
    ("boolean[]", ["{t,f,NULL}"]),
    ("real[]", ["{1.5,NaN,Infinity}"]),
    ("timestamp with time zone[]", ['{"2024-01-01 00:00:00+00",NULL}', "{infinity}"]),
    ("date[]", ["{2024-01-01}"]),
    ("uuid[]", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"]),
    ("jsonb[]", ['{"{\\"a\\": 1}",NULL}']),
    ("bytea[]", ['{"\\\\x00ff"}']),
    ("inet[]", ["{10.0.0.1,10.0.0.0/8}"]),
    ("box[]", ["{(3,4),(1,2);(1,1),(0,0)}"]),
    ("interval[]", ['{"1 day"}']),
]  # fmt: skip

MADE: list[tuple[str, list[str]]] = [
    ("mood", ["sad", 'very "happy"']),
    ("pair", ["(1,x)", '(,"a b")', "(,)"]),
    ("small", ["999"]),
    ("price", ["12345.67", "NaN"]),
    ("nice_mood", ["so so"]),
    ("mood[]", ['{sad,"so so"}']),
    ("pair[]", ['{"(1,x)","(,)"}']),
    ("small[]", ["{1,2}"]),
]

CATALOG = """
    SELECT format_type(t.oid, NULL), t.typinput = 'array_in'::regproc, format_type(t.typelem, NULL), t.typname
    FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typinput = 'array_in'::regproc
    WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typisdefined AND t.typtype IN ('b', 'r', 'm')
        AND COALESCE(e.typtype, 'b') IN ('b', 'r', 'm')
    ORDER BY t.oid
"""
"""Every type that the server itself has: how SQL writes it, whether it is an array, of what, its name."""

SAMPLES: dict[str, str] = {
    **{type: values[0] for type, values in BUILT_IN},
    "refcursor": "a cursor", "xid": "7", "cid": "7", "tid": "(1,2)", "txid_snapshot": "1:3:2", "pg_snapshot": "1:3:2",
    "oidvector": "1 2", "int2vector": "1 2", "aclitem": "=r/postgres", "bit": "1", "character": "c",
    "numeric(10,2)": "1.00",
    "pg_node_tree": "SELECT ev_action FROM pg_catalog.pg_rewrite LIMIT 1",
}  # fmt: skip
"""A value of each; an expression where none can be written."""


def sample(type: str, name: str) -> str:
    """An expression of a type of the catalog; NULL where the server makes its values itself."""
    if name.startswith("reg"):
        return f"'0'::{type}"
    if name.endswith("multirange"):
        return f"'{{}}'::{type}"
    if name.endswith("range"):
        return f"'empty'::{type}"
    value = SAMPLES.get(type)
    if value is None:
        return f"NULL::{type}"
    if value.startswith("SELECT"):
        return f"({value})"
    return "'" + value.replace("'", "''") + f"'::{type}"
