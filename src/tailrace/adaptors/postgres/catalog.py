"""The catalog: queries for what a database knows of its tables, their columns and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.source.position import mark
from tailrace.adaptors.postgres.types import TEXT_ONLY, Type
from tailrace.errors import NotThere

if TYPE_CHECKING:
    from psycopg import Connection

_LISTED = """
    c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
    AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT IN ('information_schema', 'tailrace')
"""
_BLOCKS = "COALESCE(pg_relation_size(c.oid), 0) / current_setting('block_size')::int"
_ROWS = """
    CASE WHEN COALESCE(pg_relation_size(c.oid), 0) = 0 THEN 0
         WHEN c.reltuples < 0 OR c.relpages = 0 THEN pg_relation_size(c.oid) / 150
         ELSE (c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::int)) END::bigint
"""
_TABLES = f"""
    SELECT n.nspname, c.relname, c.oid, c.relkind = 'p', {_ROWS}
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE {_LISTED} ORDER BY 1, 2
"""
_LEAVES = f"""
    SELECT c.oid, n.nspname, c.relname, {_BLOCKS}, {_ROWS}
    FROM pg_partition_tree(%s::oid) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE t.isleaf AND c.relkind = 'r' ORDER BY 1, 2
"""
_TABLE = """
    SELECT c.oid, c.relkind = 'p', c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
ASKED = """
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS asked(schema, name, n)
    JOIN pg_namespace n ON n.nspname = asked.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name AND c.relkind IN ('r', 'p')
"""
"""The FROM clause of a query for `each`: c is the table, asked.n is its number among the tables that were asked for."""
IDENTIFIES = "CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END"
"""The condition that i is the index whose columns make up the id of c."""
_IDENTITIES = f"""
    SELECT asked.n, c.oid, c.relkind = 'p',
           COALESCE((SELECT string_agg(DISTINCT l.relreplident::text, '') FROM pg_partition_tree(c.oid) t
                     JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf AND c.relkind = 'p'), c.relreplident::text),
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND {IDENTIFIES})
    {ASKED}
"""
_SIZES = f"""
    SELECT asked.n, l.oid, ln.nspname, l.relname, {_BLOCKS.replace("c.", "l.")}, {_ROWS.replace("c.", "l.")}
    {ASKED}
    CROSS JOIN LATERAL (
        SELECT c.oid WHERE c.relkind = 'r' UNION ALL
        SELECT relid FROM pg_partition_tree(CASE WHEN c.relkind = 'p' THEN c.oid END) WHERE isleaf
    ) AS leaf(oid)
    JOIN pg_class l ON l.oid = leaf.oid AND l.relkind = 'r' JOIN pg_namespace ln ON ln.oid = l.relnamespace
    ORDER BY asked.n, l.oid
"""
_FILES = f"""
    SELECT asked.n, json_object_agg(l.oid::text, l.relfilenode::bigint)
    {ASKED}
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf) AS leaf(oid)
    JOIN pg_class l ON l.oid = leaf.oid AND l.relkind = 'r'
    GROUP BY asked.n
"""
_COLUMNS = """
    SELECT a.attname, a.atttypid, a.atttypmod, a.attgenerated FROM pg_attribute a
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
    SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND CASE WHEN %s THEN i.indisreplident ELSE i.indisprimary END
"""
_TYPES = """
    WITH RECURSIVE asked(oid, modifier) AS (SELECT * FROM unnest(%s::oid[], %s::int[])),
    chain(oid, modifier, at, mod) AS (
        SELECT oid, modifier, oid, modifier FROM asked
        UNION ALL
        SELECT c.oid, c.modifier, t.typbasetype, t.typtypmod FROM chain c JOIN pg_type t ON t.oid = c.at
        WHERE t.typtype = 'd')
    SELECT c.oid, c.modifier, format_type(c.oid, c.modifier), format_type(c.at, c.mod), t.typname,
           t.typnamespace = 'pg_catalog'::regnamespace, t.typoutput::regproc::text, c.mod,
           CASE WHEN given.typtype = 'p' THEN quote_ident(n.nspname) || '.' || quote_ident(t.typname)
                ELSE quote_ident(given.typnamespace::regnamespace::text) || '.' || quote_ident(given.typname) END,
           t.typinput = 'array_in'::regproc, e.typname, e.typnamespace = 'pg_catalog'::regnamespace, e.typdelim
    FROM chain c JOIN pg_type t ON t.oid = c.at JOIN pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_type e ON e.oid = t.typelem
    JOIN pg_proc f ON f.oid = t.typoutput JOIN pg_type given ON given.oid = f.proargtypes[0]
    WHERE t.typtype <> 'd'
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A table that can be read, as `tables` lists it."""

    schema: str
    name: str
    oid: int
    partitioned: bool
    rows: int | None

    @property
    def namespace(self) -> str:
        """The namespace of a table that the catalog lists."""
        return names.namespace(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is copied and followed."""

    name: str
    type: Type

    @property
    def expression(self) -> str:
        """The expression to select so that ADBC returns the value itself or, for a type that it does not read, its
        text."""
        column = names.quote(self.name)
        return column if self.type.native else self.text

    @property
    def text(self) -> str:
        """The expression to select for the column's text, written exactly as in the log."""
        # A cast to text would differ from the log: it cuts char(n), adds /32 to addresses, writes true for t.
        return f"pg_catalog.textin({self.type.output}({names.quote(self.name)}::{self.type.plain}))"


def shape(columns: Sequence[Column], keys: Sequence[str]) -> str:
    """A mark of all columns of a table without a key, which make up its id; "" for a table with a key."""
    return "" if keys else mark(f"{column.name} {column.type.name}" for column in columns)


@dataclass(frozen=True, slots=True)
class Identity:
    """A table, and how its changes say which row they are about.

    `identities` has a letter for each replica identity of the table or its partitions, as in pg_class.  `keyed`: the
    table has an index whose columns make up the id."""

    oid: int
    schema: str
    name: str
    partitioned: bool
    identities: str
    keyed: bool

    @property
    def namespace(self) -> str:
        """The table's namespace: schema and name."""
        return names.namespace(self.schema, self.name)

    @property
    def sql(self) -> str:
        """The table's name, quoted for SQL of PostgreSQL."""
        return names.quote(self.schema, self.name)

    @property
    def enough(self) -> bool:
        """Whether updates and deletes of the table can be followed.  If not, the server refuses them once the table is
        published."""
        return "n" not in self.identities if self.keyed else set(self.identities) <= {"f", "i"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table to copy.  `keys` make up the id; if there are none, all columns do."""

    oid: int
    schema: str
    name: str
    partitioned: bool
    keys: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def namespace(self) -> str:
        """The table's namespace: schema and name."""
        return names.namespace(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows itself: a plain table or a partition."""

    oid: int
    schema: str
    name: str
    blocks: int
    rows: int


def listing(connection: Connection[Any]) -> set[str]:
    """Return the namespaces of all tables that can be read."""
    sql = f"SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_LISTED}"
    return {names.namespace(schema, name) for schema, name in connection.execute(sql).fetchall()}


def tables(connection: Connection[Any]) -> list[Listed]:
    """Return all tables that can be read.  Partitions are part of their table."""
    found = connection.execute(_TABLES).fetchall()
    return [Listed(schema, name, oid, parted, None if parted else rows) for schema, name, oid, parted, rows in found]


def leaves(connection: Connection[Any], table: Table | Identity) -> list[Leaf]:
    """Return the plain table or the partitions that hold a table's rows, with their sizes."""
    if table.partitioned:
        return [Leaf(*row) for row in connection.execute(_LEAVES, [table.oid]).fetchall()]
    sql = f"SELECT {_BLOCKS}, {_ROWS} FROM pg_class c WHERE oid = %s"
    found = connection.execute(sql, [table.oid]).fetchone() or (0, 0)
    return [Leaf(table.oid, table.schema, table.name, *found)]


def leaves_each(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, list[Leaf]]:
    """Return the leaves of many tables, by one query."""
    found: dict[str, list[Leaf]] = {}
    for name, *leaf in each(connection, _SIZES, namespaces):
        found.setdefault(name, []).append(Leaf(*leaf))
    return found


def without_columns(connection: Connection[Any], namespaces: Sequence[str]) -> set[str]:
    """Return the tables among these that have no columns, so that their rows say nothing."""
    sql = f"""SELECT asked.n {ASKED} WHERE NOT EXISTS (
              SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)"""
    return {name for (name,) in each(connection, sql, namespaces)}


def each(connection: Connection[Any], sql: str, namespaces: Sequence[str]) -> list[Any]:
    """Run a query that is built on `ASKED` and selects asked.n first, for all these tables at once.

    Returns its rows with the namespace in place of the number; tables that do not exist have no row."""
    asked = [names.parts(name) for name in namespaces]
    rows = connection.execute(sql, [[schema for schema, _ in asked], [name for _, name in asked]]).fetchall()
    return [(namespaces[n - 1], *rest) for n, *rest in rows]


def files(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, dict[str, int]]:
    """The files that hold the rows of each table.  VACUUM FULL, among others, gives a table new files."""
    return dict(each(connection, _FILES, namespaces))


def table(connection: Connection[Any], namespace: str, published: Sequence[str] | None = None) -> Table:
    """Return a table by its namespace.  `published`: the columns that a publication has of it.  Raises `NotThere` if it
    does not exist."""
    schema, name = names.parts(namespace)
    found = connection.execute(_TABLE, [schema, name]).fetchone()
    if found is None:
        raise absent(connection, namespace)
    oid, partitioned, identity = found
    made = _columns(connection, oid, published)
    return Table(oid, schema, name, partitioned, keys(connection, oid, identity), made)


def absent(connection: Connection[Any], *namespaces: str) -> NotThere:
    """The error for tables that do not exist."""
    which = ", ".join(namespaces[:10]) + (", …" if len(namespaces) > 10 else "")
    return NotThere(f"{connection.info.dbname!r} has no table {which}; create it, or leave it out of the namespace")


def identities(connection: Connection[Any], namespaces: Sequence[str]) -> list[Identity]:
    """Return those of the tables that exist."""
    found = each(connection, _IDENTITIES, namespaces)
    return [Identity(oid, *names.parts(name), *rest) for name, oid, *rest in found]


def identity(connection: Connection[Any], namespace: str) -> Identity:
    """Return a table by its namespace.  Raises `NotThere` if it does not exist."""
    found = identities(connection, [namespace])
    if not found:
        raise absent(connection, namespace)
    return found[0]


def _columns(connection: Connection[Any], oid: int, published: Sequence[str] | None) -> tuple[Column, ...]:
    found = connection.execute(_COLUMNS, [oid]).fetchall()
    # Before version 18, publications list generated columns, too, but the server does not send them.
    sent = connection.info.server_version >= 180000 and published is not None
    wanted = [
        (name, type, modifier)
        for name, type, modifier, generated in found
        if (published is None or name in published) and (sent or not generated)
    ]
    kinds = types(connection, [(type, modifier) for _, type, modifier in wanted])
    return tuple(Column(n, kinds[t, m]) for n, t, m in wanted)


def keys(connection: Connection[Any], oid: int, identity: str) -> tuple[str, ...]:
    """The columns of a PostgreSQL table's id, in the table's order: those of the index of its replica identity, or else
    of its primary key."""
    row = connection.execute(_KEYS, [oid, identity == "i"]).fetchone()
    return tuple(row[0] or ()) if row else ()


def is_deferrable(connection: Connection[Any], oid: int) -> bool:
    """Whether the catalog says that two rows may have the same primary key until the transaction commits."""
    sql = "SELECT 1 FROM pg_index WHERE indrelid = %s AND indisprimary AND NOT indimmediate"
    return connection.execute(sql, [oid]).fetchone() is not None


def types(connection: Connection[Any], asked: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Type]:
    """Return types by oid and modifier, as far as the catalog still has them."""
    wanted = sorted(set(asked))
    rows = connection.execute(_TYPES, [[oid for oid, _ in wanted], [mod for _, mod in wanted]]).fetchall()
    return {(row[0], row[1]): _type(*row[2:]) for row in rows}


def _type(
    name: str, base: str, kind: str, builtin: bool, output: str, modifier: int, plain: str,
    array: bool, element: str | None, element_builtin: bool | None, delimiter: str | None,
) -> Type:  # fmt: skip
    if (builtin and kind in TEXT_ONLY) or (array and element_builtin and element in TEXT_ONLY):
        return Type("text", output=output, plain=plain)
    known = builtin or (array and bool(element_builtin))
    inner = (element or "") if array and element_builtin and delimiter == "," else ""
    return Type(name, base if known else "text", kind if builtin else "", inner, output, plain, modifier)
