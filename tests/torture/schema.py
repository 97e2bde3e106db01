"""The schema: some 85 awkward tables, and texts of values for every type that they have."""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.adaptors.postgres.names import literal, namespace, quote
from tests.adaptors.postgres.values import BUILT_IN, MADE, SETUP

ODD = "Odd Schema"
FULL = ("ALTER TABLE {t} REPLICA IDENTITY FULL",)
BEFORE = f"""
{SETUP}
CREATE DOMAIN numbers AS int[];
CREATE TYPE nested AS (p pair, m mood[], at timestamptz);
CREATE TYPE span AS RANGE (subtype = int8);
CREATE SCHEMA {quote(ODD)};
CREATE SCHEMA torture;
CREATE SCHEMA ledger;
CREATE TABLE ledger.done (writer int PRIMARY KEY, number int NOT NULL);
"""
"""What the tables need.  The ledger says which transaction of each writer was the last to commit."""

TEXTS = {
    **dict(BUILT_IN),
    **dict(MADE),
    "int": ["0", "-1", "2147483647", "7", "42"],
    "numeric(12,3)": ["1.500", "-0.001", "123456789.123"],
    "float8": ["0.1", "NaN", "-0", "1e300"],
    "varchar(40)": ["", "forty", "ünï"],
    "timestamptz": ["2024-01-01 12:34:56.789012+00", "infinity", "2038-01-19 03:14:07+00"],
    "numbers": ["{1,2}", "{}"],
    "nested": ['("(1,x)","{sad}","2024-01-01 00:00:00+00")', "(,,)"],
    "span": ["[1,9)", "empty"],
    "refcursor": ["cursor"],
    "pg_catalog.regclass": ["pg_class", "-"],
}


@dataclass
class Column:
    """A column.  The server fills those that are not `settable`."""

    name: str
    type: str
    settable: bool = True
    extra: str = ""

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return quote(self.name)


@dataclass
class Table:
    """A table, as its writer believes it to be.  `traits` say what may be done to it.  {t} in `after` is its name."""

    name: str
    columns: list[Column]
    key: tuple[str, ...] = ()
    schema: str = "public"
    traits: frozenset[str] = frozenset()
    clause: str = ""
    inside: str = ""
    after: tuple[str, ...] = ()
    rows: int = 60
    former: list[str] = field(default_factory=list)
    """Names that it had."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Partitions that were attached: their names, and the region of their rows."""

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return quote(self.schema, self.name)

    @property
    def namespace(self) -> str:
        """Its namespace in the pipeline."""
        return namespace(self.schema, self.name)

    @property
    def create(self) -> str:
        """The statements that make it."""
        parts = [f"{c.sql} {c.type} {c.extra}" for c in self.columns]
        if self.key and not self.inside and "by index" not in self.traits:
            parts.append(f"PRIMARY KEY ({', '.join(map(quote, self.key))})")
        parts += [self.inside] if self.inside else []
        unlogged = "UNLOGGED " if "unlogged" in self.traits else ""
        made = f"CREATE {unlogged}TABLE {self.sql} ({', '.join(parts)}) {self.clause};"
        return "\n".join([made, *(f"{order.replace('{t}', self.sql)};" for order in self.after)])

    def settable(self) -> list[Column]:
        """The columns that an UPDATE may set and that are no part of the key."""
        return [column for column in self.columns if column.settable and column.name not in self.key]


def text(rng: random.Random, column: Column, *, null: bool = True) -> str:
    """A random value of a column, in SQL."""
    if null and rng.random() < 0.15 and "NOT NULL" not in column.extra:
        return "NULL"
    if column.type == "text" and rng.random() < 0.5:
        return literal(f"v{rng.randrange(10**6)}")
    if column.type == "int" and rng.random() < 0.5:
        return str(rng.randrange(-1000, 1000))
    return f"{literal(rng.choice(TEXTS[column.type]))}::{column.type}"


def key_text(type: str, n: int) -> str:
    """A value of a key's column that no other number has, as far as the type has so many."""
    day = datetime.date(2000, 1, 1) + datetime.timedelta(days=n % 2_900_000)
    if type in ("timestamptz", "timestamp", "date") and n % 17 == 3:
        return f"{literal('infinity' if n % 2 else '-infinity')}::{type}"
    made = {
        "int": n, "bigint": n * 4_294_967_296, "smallint": n % 32_000, "float8": n + 0.1,
        "oid": n, "boolean": n % 2 > 0,
        "numeric": f"{n}.{'0' * (n % 4)}" if n % 4 else n, "numeric(12,3)": f"{n}.125", "text": f"k{n}'\t ü\x1f",
        "varchar(40)": f"k{n}", "character(12)": f"k{n}", "name": f"k{n}", "bytea": f"\\x{n:08x}00ff",
        "uuid": uuid.UUID(int=n * 2**90 + n), "date": day, "timestamp": f"{day} 12:34:56.5",
        "timestamptz": f"{day} 12:34:56.789+02", "time": f"{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.5",
        "interval": f"{n} hours", "inet": f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}", "macaddr8": f"{n:016x}",
        "jsonb": f'{{"n": {n}, "a": "ü"}}', "int[]": f"{{{n},{n + 1}}}", "text[]": f'{{"k {n}",NULL}}',
        "int4range": f"[{n * 2},{n * 2 + 1})", "mood": ["sad", "so so", 'very "happy"'][n % 3], "small": n % 999,
        "bit(20)": f"{n % 2**20:020b}", "pg_lsn": f"{n:X}/{n:X}", "pair": f"({n},x)", "money": f"{n}.25",
        "tstzrange": f"[{day},{day + datetime.timedelta(days=1)})",
    }[type]  # fmt: skip
    return f"{literal(str(made))}::{type}"


def _columns(*given: str) -> list[Column]:
    return [Column(*one.split(" ", 1)) for one in given]


def _types() -> Iterator[Table]:
    """Every type: some to a table, all in one without a key, and those of our own making."""
    named = [(type, f"c{n}") for n, (type, _) in enumerate(BUILT_IN)]
    for first in range(0, len(named), 7):
        some = [Column(name, type) for type, name in named[first : first + 7]]
        yield Table(f"types_{first // 7}", [Column("id", "int"), *some], ("id",))
    every = [Column(name, type) for type, name in named[::2] if type != "regclass"]
    yield Table("every_keyless", every, after=FULL, rows=30)
    made = [Column(f"c{n}", type) for n, (type, _) in enumerate([*MADE, ("numbers", []), ("nested", []), ("span", [])])]
    yield Table("types_made", [Column("id", "int"), *made], ("id",))
    yield Table(
        "types_rare", _columns("id int", "cursor refcursor", "class pg_catalog.regclass"), ("id",), traits=_is("rare")
    )


KEYS = (
    "bigint", "smallint", "boolean", "float8", "numeric", "numeric(12,3)", "text", "character(12)", "name", "bytea",
    "uuid", "date", "timestamp", "timestamptz", "time", "interval", "inet", "macaddr8", "jsonb", "int[]", "text[]",
    "int4range", "mood", "small", "bit(20)", "pair", "money", "oid", "pg_lsn",
)  # fmt: skip


def _keys() -> Iterator[Table]:
    """Every kind of key."""
    for type in KEYS:
        name = f"key_{''.join(c if c.isalnum() else '_' for c in type)}"
        few = 2 if type == "boolean" else 3 if type == "mood" else 40
        yield Table(name, [Column("k", type), *_columns("v text", "n int")], ("k",), rows=few)
    yield Table("key_two", _columns("a int", "v text", "b text"), ("a", "b"), traits=_is("swaps"))
    yield Table("key_five", _columns("e int", "d uuid", "v text", "c text", "b date", "a bigint"), tuple("abcde"))
    yield Table("key_last", _columns("v text", "w text", "id int"), ("id",), traits=_is("swaps"))
    deferred = "PRIMARY KEY (id) DEFERRABLE INITIALLY {}"
    for when in ("IMMEDIATE", "DEFERRED"):
        yield Table(
            f"key_{when.lower()}", _columns("id int", "v text"), ("id",), inside=deferred.format(when),
            traits=_is("deferrable", "swaps"), after=FULL,
        )  # fmt: skip
    index = ("CREATE UNIQUE INDEX ON {t} (b, a)", "ALTER TABLE {t} REPLICA IDENTITY USING INDEX by_index_b_a_idx")
    parts = [Column("a", "int", extra="NOT NULL"), Column("b", "text", extra="NOT NULL"), Column("v", "text")]
    yield Table("by_index", parts, ("a", "b"), traits=_is("by index", "named"), after=index)
    yield Table("full_keyed", _columns("id int", "v text", "w text"), ("id",), traits=_is("swaps"),
                after=(*FULL, "ALTER TABLE {t} ALTER w SET STORAGE EXTERNAL"))  # fmt: skip
    yield Table("key_include", _columns("id int", "v text"), ("id",), inside="PRIMARY KEY (id) INCLUDE (v)")
    for how in ("ALWAYS", "BY DEFAULT"):
        id = Column("id", "int", settable=how != "ALWAYS", extra=f"GENERATED {how} AS IDENTITY")
        yield Table(f"identity_{how[0].lower()}", [id, *_columns("v text", "n int")], ("id",), traits=_is("serial"))
    full = FULL
    yield Table("keyless", _columns("a int", "b text"), after=full, traits=_is("doubles"))
    yield Table("keyless_wide", _columns(*(f"c{n} int" for n in range(40))), after=full, rows=20)
    yield Table("only_null", _columns("a text"), after=full, traits=_is("doubles"))
    yield Table("no_columns", [], after=full, rows=5, traits=_is("no columns"))


def _is(*traits: str) -> frozenset[str]:
    return frozenset(traits)


def _parts() -> Iterator[Table]:
    """Partitions, inheritance, generated columns, large values, triggers and references."""
    halves = [f"CREATE TABLE {{p}}_{n} PARTITION OF {{t}} FOR VALUES WITH (MODULUS 2, REMAINDER {n})" for n in (0, 1)]
    given = {
        "parts_list": ("LIST (region)", ["CREATE TABLE {p}_0 PARTITION OF {t} FOR VALUES IN (0, 1)",
                                         "CREATE TABLE {p}_rest PARTITION OF {t} DEFAULT"]),
        "parts_range": ("RANGE (id)", ["CREATE TABLE {p}_low PARTITION OF {t} FOR VALUES FROM (MINVALUE) TO (30)",
                                       "CREATE TABLE {p}_high PARTITION OF {t} FOR VALUES FROM (30) TO (MAXVALUE)"]),
        "parts_hash": ("HASH (id)", halves),
        "parts_deep": ("LIST (region)", [
            "CREATE TABLE {p}_d PARTITION OF {t} DEFAULT PARTITION BY RANGE (id)",
            "CREATE TABLE {p}_dl PARTITION OF {p}_d FOR VALUES FROM (MINVALUE) TO (40)",
            "CREATE TABLE {p}_dd PARTITION OF {p}_d DEFAULT"]),
        "parts_mixed": ("LIST (region)", [
            "CREATE TABLE {p}_odd (gone int, v text, region int NOT NULL, id int NOT NULL, n int)",
            "ALTER TABLE {p}_odd DROP gone", "ALTER TABLE {t} ATTACH PARTITION {p}_odd FOR VALUES IN (1, 3)",
            "CREATE TABLE {p}_rest PARTITION OF {t} DEFAULT"]),
    }  # fmt: skip
    for name, (by, orders) in given.items():
        after = tuple(order.replace("{p}", name) for order in orders)
        columns = [Column("id", "int"), Column("region", "int", extra="NOT NULL"), *_columns("v text", "n int")]
        yield Table(
            name, columns, ("id", "region"), clause=f"PARTITION BY {by}", after=after, traits=_is("partitioned", by[:4])
        )
    yield Table("parts_keyless", _columns("a int", "v text"), clause="PARTITION BY LIST (a)", traits=_is("partitioned"),
                after=("CREATE TABLE parts_keyless_d PARTITION OF {t} DEFAULT",
                       "ALTER TABLE parts_keyless_d REPLICA IDENTITY FULL",
                       "ALTER TABLE {t} REPLICA IDENTITY FULL"))  # fmt: skip
    yield Table("parent", _columns("id int", "v text"), ("id",), traits=_is("fixed"))
    heir = [*_columns("id int", "v text"), Column("more", "int")]
    yield Table("heir", heir, ("id",), clause="INHERITS (parent)", traits=_is("fixed"))
    doubled = Column("twice", "int", settable=False, extra="GENERATED ALWAYS AS (n / 2) STORED")
    virtual = Column("soft", "int", settable=False, extra="GENERATED ALWAYS AS (n / 3) VIRTUAL")
    yield Table("generated", [*_columns("id int", "n int", "v text"), doubled, virtual], ("id",))
    stored = Column("k", "int", settable=False, extra="GENERATED ALWAYS AS (n / 2) STORED")
    yield Table("generated_keyless", [*_columns("n int"), stored], after=FULL)
    large = ("ALTER TABLE {t} ALTER big SET STORAGE EXTERNAL", "ALTER TABLE {t} ALTER raw SET STORAGE EXTERNAL")
    for name, key in (("toast", ("id",)), ("toast_keyless", ())):
        after = large if key else (*large, *FULL)
        yield Table(name, _columns("id int", "v text", "big text", "raw bytea"), key, after=after, traits=_is("large"))
    yield Table("toast_list", _columns("id int", "big text[]", "doc jsonb"), ("id",), traits=_is("large"))
    yield Table("huge", _columns("id int", "big text", "v text"), ("id",), rows=2, traits=_is("huge"),
                after=("ALTER TABLE {t} ALTER big SET STORAGE EXTERNAL",))  # fmt: skip
    yield Table("wide", [Column("id", "int"), *_columns(*(f"c{n} text" for n in range(450)))], ("id",), rows=4)
    yield Table("referred", _columns("id int", "v text"), ("id",), traits=_is("referred"))
    refers = Column("up", "int", extra="REFERENCES referred ON DELETE SET NULL ON UPDATE CASCADE")
    yield Table("refers", [Column("id", "int"), refers, Column("v", "text")], ("id",), traits=_is("refers"))
    yield Table("told", _columns("id int", "v text"), traits=_is("fixed"), rows=0,
                after=FULL)  # fmt: skip
    tell = "INSERT INTO told SELECT COALESCE(NEW.id, OLD.id), TG_OP; RETURN NEW"
    tells = (
        f"CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {tell}; END$$",
        "CREATE TRIGGER tells AFTER INSERT OR UPDATE OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    yield Table("teller", _columns("id int", "v text"), ("id",), traits=_is("fixed"), after=tells)
    yield Table("unlogged", _columns("id int", "v text"), ("id",), traits=_is("unlogged", "fixed"))
    yield Table("empty", _columns("id int", "v text"), ("id",), rows=0, traits=_is("empty"))
    yield Table("empty_keyless", _columns("v text"), rows=0, traits=_is("empty"),
                after=FULL)  # fmt: skip
    for name in ("swap_one", "swap_two"):
        yield Table(name, _columns("id int", "v text"), ("id",), traits=_is("swapped"))
    yield Table("many", _columns("id int", "v text", "n int"), ("id",), rows=3000, traits=_is("many"))


OURS = ("op", "unset", "id", "namespace", "key", "data", "timestamp", "attributes", "n", "c0", "s", "t", "rest")
"""Names that the product uses for columns, keys and aliases of its own."""


def _names() -> Iterator[Table]:
    """Names that are hard to write, that collide when they are cleaned up, and that are the product's own."""
    plain = _columns("id int", "v text")
    names = (
        "order-items", "order.items", "order items", "order_items", "ORDER", "select", 'q"uote', "per%cent %s",
        "sla/sh", "..", "back\\slash", "line\nbreak", "ünïcödé😀", "x" * 63, "_tailrace", "$dollar",
    )  # fmt: skip
    for name in names:
        yield Table(name, [Column(c.name, c.type) for c in plain], ("id",), rows=20)
    yield Table("in a schema", [Column(c.name, c.type) for c in plain], ("id",), schema=ODD, rows=20)
    yield Table("log", [Column(c.name, c.type) for c in plain], ("id",), schema="torture", rows=20)
    yield Table("keyless", _columns("a int"), schema=ODD, rows=20, after=FULL)
    yield Table("columns_ours", [Column(name, "text") for name in OURS], ("id",), traits=_is("our names"), rows=20)
    keyless = [Column(name, "text") for name in OURS]
    yield Table("columns_ours_keyless", keyless, traits=_is("our names"), rows=20,
                after=FULL)  # fmt: skip
    files = ("id", "_op", "_timestamp", "_unset", "_partition", "_offset", "_position")
    yield Table(
        "columns_of_files", [Column(name, "text") for name in files], ("id",), traits=_is("file names"), rows=20
    )
    odd = ("Id", "id ", "a.b", 'q"', "per%cent", "%s", "%(x)s", ":v", "{v}", "sel/ect", "ü😀", "y" * 63, "\n", "select")
    yield Table("columns_odd", [Column(name, "text") for name in odd], ("Id", "a.b"), rows=20)


def tables(without: Sequence[str] = ()) -> list[Table]:
    """All tables, but those with a name or trait that is left out."""
    made = [*_types(), *_keys(), *_parts(), *_names()]
    return [one for one in made if not ({one.name} | one.traits) & set(without)]
