"""Actions: what writers do to tables.  Each gives statements, and what the table is if they are committed.

Nothing here looks at the server: which rows a statement is about it finds out there, by their order as text, so the
same seed does the same to the same tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tailrace.adaptors.postgres.names import literal, quote
from tests.torture.schema import FULL, ODD, Column, Table, key_text, text

Ending = Literal["commit", "rollback", "prepare", "prepare and rollback", "alone"]
"""How a transaction ends; alone: a statement that may not be in one."""


@dataclass
class Plan:
    """One transaction.  `becomes` changes the book once it is committed."""

    name: str
    touches: list[str]
    statements: list[str]
    becomes: Callable[[], None] = lambda: None
    ending: Ending = "commit"


@dataclass
class Book:
    """What a writer knows: its tables, as they are now, and its own randomness."""

    rng: random.Random
    tables: list[Table]
    first: int
    """Where its numbers begin; other writers' are elsewhere."""
    used: int = 0

    def fresh(self) -> int:
        """A number that was not used before."""
        self.used += 1
        return self.first + self.used

    def pick(self, *traits: str, without: Sequence[str] = ()) -> Table | None:
        """One of the tables, with all of some traits and none of others."""
        found = [t for t in self.tables if t.traits >= set(traits) and not t.traits & set(without)]
        return self.rng.choice(found) if found else None


Action = Callable[[Book], "list[Plan] | None"]


def rows(book: Book, table: Table, most: int = 3) -> str:
    """A condition that some rows of a table meet."""
    part, count = book.rng.random(), book.rng.randrange(1, most + 1)
    return (
        f'(tableoid, ctid) IN (SELECT tableoid, ctid FROM {table.sql} the_row ORDER BY the_row::text COLLATE "C" '
        f"OFFSET (SELECT floor(count(*) * {part:.3f}) FROM {table.sql})::int LIMIT {count})"
    )


# -- rows
def value(book: Book, table: Table, column: Column) -> str:
    """A new value for a column, in SQL."""
    rng = book.rng
    if column.extra.startswith("REFERENCES"):
        return f"(SELECT id FROM referred ORDER BY id OFFSET {rng.randrange(60)} LIMIT 1)"
    if column.name in ("big", "raw", "doc") and rng.random() < 0.7:
        return large(rng, table, column)
    return text(rng, column)


def large(rng: random.Random, table: Table, column: Column) -> str:
    """A value that the server keeps elsewhere."""
    if "huge" in table.traits:
        return f"repeat({literal(str(rng.randrange(1000)))}, {rng.randrange(300_000, 1_500_000)})"
    start, size = rng.randrange(10**6), rng.randrange(60, 400)
    chars = f"(SELECT string_agg(md5(i::text), '') FROM generate_series({start}, {start + size}) i)"
    return {
        "text": chars, "bytea": f"convert_to({chars}, 'UTF8')", "text[]": f"ARRAY[{chars}, NULL, 'x']",
        "jsonb": f"jsonb_build_object('a', {chars}, 'n', {start})",
    }[column.type]  # fmt: skip


def key_value(column: Column, n: int) -> str:
    """The n-th value of a column of a key."""
    return str(n % 4) if column.name == "region" else key_text(column.type, n)


def inserting(book: Book, table: Table, count: int) -> list[str]:
    """Statements that insert rows."""
    columns = [c for c in table.columns if c.settable]
    if not columns:
        return [f"INSERT INTO {table.sql} DEFAULT VALUES"] * count
    made = []
    for _ in range(count):
        n = book.fresh()
        row = [key_value(c, n) if c.name in table.key else value(book, table, c) for c in columns]
        made.append(f"({', '.join(row)})")
    if "doubles" in table.traits:
        made += made[: book.rng.randrange(3)]
    into = f"INSERT INTO {table.sql} ({', '.join(c.sql for c in columns)}) VALUES {', '.join(made)}"
    return [into if "deferrable" in table.traits else f"{into} ON CONFLICT DO NOTHING"]


def insert(book: Book, table: Table) -> list[str]:
    """Some new rows."""
    return inserting(book, table, 1 if "huge" in table.traits else book.rng.choice([1, 1, 2, 8]))


def update(book: Book, table: Table) -> list[str]:
    """Some columns of some rows."""
    columns = table.settable()
    if not columns:
        return []
    some = book.rng.sample(columns, min(len(columns), book.rng.choice([1, 1, 2, 5])))
    sets = ", ".join(f"{c.sql} = {value(book, table, c)}" for c in some)
    return [f"UPDATE {table.sql} SET {sets} WHERE {rows(book, table)}"]


def touch(book: Book, table: Table) -> list[str]:
    """Rows written as they are: the log leaves large values out."""
    columns = table.settable()
    if not columns:
        return []
    column = book.rng.choice(columns).sql
    return [f"UPDATE {table.sql} SET {column} = {column} WHERE {rows(book, table, 10)}"]


def delete(book: Book, table: Table) -> list[str]:
    """Some rows."""
    return [f"DELETE FROM {table.sql} WHERE {rows(book, table)}"]


def rekey(book: Book, table: Table) -> list[str]:
    """A row gets another key; of several columns perhaps only one changes."""
    columns = [c for c in table.columns if c.name in table.key and c.settable]
    if not columns:
        return update(book, table)
    n, some = book.fresh(), book.rng.sample(columns, book.rng.randrange(1, len(columns) + 1))
    sets = ", ".join(f"{c.sql} = {key_value(c, n)}" for c in some)
    return [f"UPDATE {table.sql} SET {sets} WHERE {rows(book, table, 1)}"]


def replace(book: Book, table: Table) -> list[str]:
    """Rows deleted and inserted again, with another value, in one transaction."""
    columns, kept = [c for c in table.columns if c.settable], f"kept_{book.fresh()}"
    if not columns or "refers" in table.traits or "referred" in table.traits:
        return update(book, table)
    condition, names = rows(book, table, 4), ", ".join(c.sql for c in columns)
    changed = [c for c in table.settable() if not c.extra][:1]
    again = ", ".join(value(book, table, c) if c in changed else c.sql for c in columns)
    if len(columns) < len([c for c in table.columns if "IDENTITY" in c.extra or c.settable]):
        return update(book, table)
    return [
        f"CREATE TEMP TABLE {kept} ON COMMIT DROP AS SELECT {names} FROM {table.sql} WHERE {condition}",
        f"DELETE FROM {table.sql} WHERE {condition}",
        f"INSERT INTO {table.sql} ({names}) SELECT {again} FROM {kept}",
    ]


def swap_keys(book: Book, table: Table) -> list[str]:
    """Two rows exchange their keys: in one statement where the key is deferrable, else on a way around."""
    if "swaps" not in table.traits:
        return rekey(book, table)
    key = next(c.sql for c in table.columns if c.name in table.key and c.type == "int")
    offset = book.rng.randrange(50)
    two = f"SELECT {key} FROM {table.sql} WHERE {key} > 0 ORDER BY {key} OFFSET {offset} LIMIT 2"
    if "deferrable" in table.traits:
        pair = f"WITH p AS (SELECT min({key}) low, max({key}) high FROM ({two}) q) UPDATE {table.sql} "
        swap = f"SET {key} = CASE {key} WHEN p.low THEN p.high ELSE p.low END FROM p WHERE {key} IN (p.low, p.high)"
        return [pair + swap]
    away = f"UPDATE {table.sql} SET {key} = -{key} WHERE {key} IN ({two})"
    pair = f"WITH p AS (SELECT min({key}) low, max({key}) high FROM {table.sql} WHERE {key} < 0) UPDATE {table.sql} "
    return [away, pair + f"SET {key} = CASE {key} WHEN p.low THEN -p.high ELSE -p.low END FROM p WHERE {key} < 0"]


def respell(book: Book, table: Table) -> list[str]:
    """A key that is written otherwise, and is the same to its index."""
    column = next((c for c in table.columns if c.name in table.key), None)
    spelled = {
        "numeric": "{k} * 1.0",
        "float8": "-{k} * -1",
        "character(12)": "rtrim({k})",
        "interval": "justify_hours({k})",
    }
    if column is None or column.type not in spelled:
        return touch(book, table)
    again = spelled[column.type].format(k=column.sql)
    return [f"UPDATE {table.sql} SET {column.sql} = {again} WHERE {rows(book, table, 4)}"]


ROWS: dict[str, tuple[Callable[[Book, Table], list[str]], int]] = {
    "insert": (insert, 22), "update": (update, 25), "touch": (touch, 6), "delete": (delete, 12), "rekey": (rekey, 8),
    "replace": (replace, 5), "swap_keys": (swap_keys, 8), "respell": (respell, 3),
}  # fmt: skip
STILL = ("empty",)
"""Traits of tables that get no rows."""


def data(book: Book, names: Iterable[str], among: Table | None = None) -> tuple[str, list[str], list[str]]:
    """One or several changes of rows: what they are, the tables, the statements."""
    some = [(name, *ROWS[name]) for name in names]
    what, touched, statements = [], [], []
    for _ in range(book.rng.choice([1, 1, 1, 2, 5])):
        table = among or book.pick(without=STILL)
        ((name, make, _),) = book.rng.choices(some, [weight for *_, weight in some])
        if table is not None:
            what.append(name)
            touched.append(table.namespace)
            statements += make(book, table)
    return " ".join(what), touched, statements


# -- tables that stay
def truncate(book: Book) -> list[Plan] | None:
    """A table is emptied; perhaps it has rows again in the same transaction."""
    table = book.pick(without=("fixed", "referred"))
    if table is None:
        return None
    more = inserting(book, table, 3) if book.rng.random() < 0.5 and not table.traits & set(STILL) else []
    return [Plan("truncate", [table.namespace], [f"TRUNCATE {table.sql}", *more])]


def truncate_partition(book: Book) -> list[Plan] | None:
    """One partition alone is emptied."""
    table = book.pick("partitioned", "LIST")
    if table is None or not table.partitions:
        return None
    return [Plan("truncate_partition", [table.namespace], [f"TRUNCATE {book.rng.choice(sorted(table.partitions))}"])]


def add_column(book: Book) -> list[Plan] | None:
    """A new column: empty, with a default for all, or with another value in each row."""
    table = book.pick(without=("fixed", "no columns"))
    if table is None:
        return None
    name, type = f"x{book.fresh()}", book.rng.choice(["int", "text", "timestamptz", "numeric(12,3)"])
    default = book.rng.choice(["", "constant", "volatile"])
    kept = Column(name, type)
    say = {"": "", "constant": f"DEFAULT {text(book.rng, kept, null=False)}"}.get(default, "")
    if default == "volatile":
        kept.type, say = "text", "DEFAULT md5(random()::text)"
    if say and book.rng.random() < 0.3:
        kept.extra = "NOT NULL"
    order = f"ALTER TABLE {table.sql} ADD {kept.sql} {kept.type} {kept.extra} {say}"
    _, _, more = data(book, ["insert", "update"], table) if book.rng.random() < 0.5 else ("", [], [])
    kept.extra = ""  # a later insert may leave it out, or say NULL where that is allowed
    if "NOT NULL" in order:
        kept = Column(kept.name, kept.type, extra="NOT NULL")
    return [Plan("add_column", [table.namespace], [order, *more], lambda: table.columns.append(kept))]


def _pick_added(book: Book, *types: str) -> tuple[Table, Column] | None:
    """A column that was added, perhaps of some types."""
    tables = [table for table in book.tables if "fixed" not in table.traits]
    found = [(t, c) for t in tables for c in _added(t) if not types or c.type in types]
    return book.rng.choice(found) if found else None


def _added(table: Table) -> list[Column]:
    return [column for column in table.columns if column.name.startswith("x") and column.name[1:].isdigit()]


def drop_column(book: Book) -> list[Plan] | None:
    """A column that was added goes; perhaps another one has its name at once."""
    found = _pick_added(book)
    if found is None:
        return None
    table, column = found
    if book.rng.random() < 0.3:
        again = f"ALTER TABLE {table.sql} DROP {column.sql}, ADD {column.sql} {column.type}"
        return [Plan("drop_and_add_column", [table.namespace], [again], lambda: setattr(column, "extra", ""))]
    order = f"ALTER TABLE {table.sql} DROP {column.sql}"
    return [Plan("drop_column", [table.namespace], [order], lambda: table.columns.remove(column))]


def rename_column(book: Book) -> list[Plan] | None:
    """A column gets another name; perhaps rows change before and after, in one transaction."""
    found = _pick_added(book)
    if found is None:
        return None
    (table, column), name = found, f"x{book.fresh()}"
    order = f"ALTER TABLE {table.sql} RENAME {column.sql} TO {quote(name)}"
    before = update(book, table) if book.rng.random() < 0.3 else []
    return [Plan("rename_column", [table.namespace], [*before, order], lambda: setattr(column, "name", name))]


WIDER = {"int": "bigint", "varchar(40)": "text", "numeric(12,3)": "numeric", "smallint": "int"}


def widen_column(book: Book) -> list[Plan] | None:
    """A column gets a type that holds more."""
    found = _pick_added(book, *WIDER)
    if found is None:
        return None
    table, column = found
    wider = WIDER[column.type]
    orders = [f"ALTER TABLE {table.sql} ALTER {column.sql} TYPE {wider}"]
    if wider == "bigint":
        orders.append(f"UPDATE {table.sql} SET {column.sql} = 4294967296 WHERE {rows(book, table)}")
    return [Plan("widen_column", [table.namespace], orders, lambda: setattr(column, "type", wider))]


def rewrite(book: Book) -> list[Plan] | None:
    """All rows move within the server, and are the same."""
    table = book.pick(without=("fixed", "partitioned"))
    return table and [Plan("rewrite", [table.namespace], [f"VACUUM FULL {table.sql}"], ending="alone")]


def identify(book: Book) -> list[Plan] | None:
    """Changes say more, or less, of the row that they are about."""
    table = book.pick(without=("fixed", "partitioned", "deferrable", "by index", "swapped"))
    if table is None or not table.key:
        return None
    full = book.rng.random() < 0.5
    orders = [f"ALTER TABLE {table.sql} REPLICA IDENTITY {'FULL' if full else 'DEFAULT'}", *update(book, table)]
    return [Plan("identify", [table.namespace], orders)]


def enlarge(book: Book) -> list[Plan] | None:
    """A large transaction."""
    table = book.pick("many")
    if table is None:
        return None
    n = book.fresh()
    many = (
        f"INSERT INTO {table.sql} (id, v, n) SELECT {n % 20_000} * 100000 + i, repeat('m', i % 50), i "
        f"FROM generate_series(1, 5000) i ON CONFLICT DO NOTHING"
    )
    orders = [
        many,
        f"UPDATE {table.sql} SET n = n - 1 WHERE n > 0 AND id % 3 = 0",
        f"DELETE FROM {table.sql} WHERE id % 4 = 1",
    ]
    return [Plan("enlarge", [table.namespace], orders)]


def attach(book: Book) -> list[Plan] | None:
    """A table with rows becomes a partition."""
    table = book.pick("partitioned", "LIST")
    if table is None:
        return None
    n = book.fresh()
    name, region = f"part_{n}", 1000 + n
    orders = [
        f"CREATE TABLE {name} (LIKE {table.sql} INCLUDING ALL)",
        f"INSERT INTO {name} (id, region, v) SELECT {n} * 100 + i, {region}, 'attached' FROM generate_series(1, 5) i",
        f"ALTER TABLE {table.sql} ATTACH PARTITION {name} FOR VALUES IN ({region})",
    ]
    return [Plan("attach", [table.namespace], orders, lambda: table.partitions.update({name: region}))]


def detach(book: Book) -> list[Plan] | None:
    """A partition leaves with its rows, and is a table of its own, or is dropped."""
    table = book.pick("partitioned", "LIST")
    if table is None or not table.partitions:
        return None
    name = book.rng.choice(sorted(table.partitions))
    kept = [f"ALTER TABLE {table.sql} DETACH PARTITION {name}", f"INSERT INTO {name} (id, region) VALUES (-1, -1)"]
    orders = kept if book.rng.random() < 0.5 else [f"DROP TABLE {name}"]
    return [Plan("detach", [table.namespace, f"public.{name}"], orders, lambda: _pop(table.partitions, name))]


def _pop(where: dict[str, int], name: str) -> None:
    del where[name]


# -- tables that come and go
def short_lived(book: Book) -> list[Plan] | None:
    """A table that is gone before anybody has looked."""
    name = f"brief_{book.fresh()}"
    table = Table(name, [Column("id", "int"), Column("v", "text")], ("id",))
    make, fill, drop = table.create, inserting(book, table, 3), f"DROP TABLE {name}"
    plans = book.rng.choice([[[make, *fill, drop]], [[make, *fill], [drop]], [[make], fill, [drop]]])
    return [Plan("short_lived", [table.namespace], orders) for orders in plans]


def appear(book: Book) -> list[Plan] | None:
    """A new table, which stays."""
    full = FULL if book.rng.random() < 0.3 else ()
    columns = [Column("id", "int"), Column("v", "text"), Column("at", "timestamptz")]
    table = Table(f"late_{book.fresh()}", columns, () if full else ("id",), after=full)
    return [
        Plan("appear", [table.namespace], [table.create, *inserting(book, table, 9)], lambda: book.tables.append(table))
    ]


MOVABLE = ("fixed", "named", "partitioned", "referred", "refers", "swapped")
"""Traits of tables that stay where they are, under their names."""


def recreate(book: Book) -> list[Plan] | None:
    """A table is dropped, and another one made under its name, with other rows."""
    table = book.pick(without=(*MOVABLE, "empty"))
    if table is None:
        return None
    drop, make = f"DROP TABLE {table.sql}", table.create
    fill = inserting(book, table, 5)
    if book.rng.random() < 0.5:
        return [Plan("recreate", [table.namespace], [drop, make, *fill])]
    return [Plan("recreate", [table.namespace], [drop]), Plan("recreate", [table.namespace], [make, *fill])]


def vanish(book: Book) -> list[Plan] | None:
    """A table that came late goes for good."""
    late = [t for t in book.tables if t.name.startswith("late_")]
    if not late:
        return None
    table = book.rng.choice(late)
    return [Plan("vanish", [table.namespace], [f"DROP TABLE {table.sql}"], lambda: book.tables.remove(table))]


def rename_table(book: Book) -> list[Plan] | None:
    """A table gets another name, or one that it had."""
    table = book.pick(without=MOVABLE)
    if table is None:
        return None
    name = table.former[0] if table.former and book.rng.random() < 0.5 else f"named_{book.fresh()}"
    was, touched = table.name, [table.namespace, f"{table.schema}.{name}"]
    order = f"ALTER TABLE {table.sql} RENAME TO {quote(name)}"
    more = insert(book, Table(name, table.columns, table.key, table.schema, table.traits))
    more = [] if table.traits & set(STILL) else more

    def becomes() -> None:
        table.name, table.former = name, [was]

    return [Plan("rename_table", touched, [order, *more], becomes)]


def move_table(book: Book) -> list[Plan] | None:
    """A table goes to another schema."""
    table = book.pick(without=(*MOVABLE, "unlogged"))
    if table is None or table.name in ("keyless", "in a schema", "log"):
        return None
    schema = "public" if table.schema == ODD else ODD
    order = f"ALTER TABLE {table.sql} SET SCHEMA {quote(schema)}"
    return [Plan("move_table", [table.namespace], [order], lambda: setattr(table, "schema", schema))]


def swap_tables(book: Book) -> list[Plan] | None:
    """Two tables exchange their names, in one transaction."""
    pair = [table for table in book.tables if "swapped" in table.traits]
    if len(pair) < 2:
        return None
    one, two = pair[0].name, pair[1].name
    orders = [f"ALTER TABLE {a} RENAME TO {b}" for a, b in ((one, "on_the_way"), (two, one), ("on_the_way", two))]

    def becomes() -> None:
        pair[0].columns, pair[1].columns = pair[1].columns, pair[0].columns

    more = [statement for table in pair for statement in insert(book, Table(table.name, table.columns[:2], table.key))]
    touched = [table.namespace for table in pair]
    return [Plan("swap_tables", touched, [*orders, *more], becomes)]


TABLES: dict[str, tuple[Action, int]] = {
    "truncate": (truncate, 6), "truncate_partition": (truncate_partition, 3), "add_column": (add_column, 10),
    "drop_column": (drop_column, 5), "rename_column": (rename_column, 6), "widen_column": (widen_column, 4),
    "rewrite": (rewrite, 3), "identify": (identify, 3), "enlarge": (enlarge, 4), "attach": (attach, 3),
    "detach": (detach, 3), "short_lived": (short_lived, 8), "appear": (appear, 4), "recreate": (recreate, 4),
    "vanish": (vanish, 2), "rename_table": (rename_table, 4), "move_table": (move_table, 2),
    "swap_tables": (swap_tables, 4),
}  # fmt: skip
