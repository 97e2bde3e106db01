"""Statements: parses the binlog's statements, for what they do to tables.

The parser reads only the beginning of a statement, and each clause of an ALTER TABLE.  It takes a clause that it does
not know for one that changed rows: better that one table too many is copied again than one too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tailrace.adaptors.mysql import names

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|--\s[^\n]*|/\*(?!!|M!)(?:[^*]|\*(?!/))*\*/|/\*M?!\d*|\*/
    |(?P<name>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")|(?P<word>[\w$@]+)|(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
Does = Literal[
    "create", "drop", "truncate", "rename", "alter", "write", "lost", "commit", "rollback", "drop database", "other"
]
Effect = Literal["none", "values", "rows"]
"""What an alteration does to existing rows: "none": nothing that a sink would see; "values": it changes values;
"rows": it changes which rows exist, or their ids."""
_HARMLESS = {
    "algorithm", "lock", "comment", "engine", "auto_increment", "row_format", "disable", "enable", "order", "force",
    "stats_persistent", "stats_auto_recalc", "stats_sample_pages", "key_block_size", "max_rows", "min_rows",
    "avg_row_length", "checksum", "compression", "encryption", "insert_method", "pack_keys", "delay_key_write", "with",
    "without", "validation", "remove", "partition", "wait", "nowait", "analyze", "optimize", "rebuild", "repair",
    "check", "reorganize", "coalesce", "partitions", "page_compressed", "page_compression_level", "transactional",
    "tablespace", "secondary_engine", "by", "default_storage_engine", "autoextend_size", "engine_attribute",
}  # fmt: skip
_INDEXES = {"index", "key", "unique", "fulltext", "spatial", "constraint", "foreign", "check"}


class Words:
    """The words and signs of a statement, without comments; names without their quotes."""

    def __init__(self, sql: str) -> None:
        self._found: list[tuple[str, bool]] = []
        """Each word or sign, and whether it can be a keyword."""
        for token in _TOKEN.finditer(sql):
            if token["name"]:
                self._found.append((token["name"][1:-1].replace("``", "`"), False))
            elif token["text"] or token["word"] or token["sign"]:
                self._found.append((token[0], token["text"] is None))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._found)

    def peek(self) -> str:
        """Return the next word of a statement in lower case without passing it; "" at the end, or if it is quoted."""
        if not self:
            return ""
        word, plain = self._found[self._at]
        return word.lower() if plain else ""

    def next(self) -> str:
        """Return the next word of a statement as it is written, and pass it; "" at the end."""
        word = self._found[self._at][0] if self else ""
        self._at += 1
        return word

    def take(self, *keywords: str) -> bool:
        """Pass these keywords of a statement if they come next; return whether they did."""
        start = self._at
        for keyword in keywords:
            if self.peek() != keyword:
                self._at = start
                return False
            self._at += 1
        return True

    def table(self, schema: str) -> str:
        """Read a table's name in a statement and return its namespace; `schema` is that of a name without one."""
        first = _unquoted(self.next())
        if self.take("."):
            return names.namespace(first, _unquoted(self.next()))
        return names.namespace(schema, first)

    def clauses(self) -> Iterator[Words]:
        """Yield the rest of a statement, cut at the commas outside of parentheses."""
        depth, held = 0, Words("")
        while self:
            token = self._found[self._at]
            self._at += 1
            depth += (token == ("(", True)) - (token == (")", True))
            if token == (",", True) and depth == 0:
                yield held
                held = Words("")
            else:
                held._found.append(token)
        if held:
            yield held

    def rest(self) -> list[str]:
        """Return the words and signs of the rest of a statement, as they are written."""
        return [word for word, _ in self._found[self._at :]]

    def has(self, *keywords: str) -> bool:
        """Return whether the rest of a statement contains one of these keywords."""
        return any(plain and word.lower() in keywords for word, plain in self._found[self._at :])


def _unquoted(name: str) -> str:
    """Return a name without double quotes, which quote names under sql_mode = ANSI_QUOTES."""
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement does to which tables; `renamed` has the old and the new name of each renamed table."""

    does: Does
    tables: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    effect: Effect = "none"
    columns: tuple[str, ...] = ()
    """Columns that an alteration drops, renames or redefines, in lower case; if one is of the key, ids change."""
    added: tuple[str, ...] = ()
    """Columns that an alteration adds without values, in lower case: sinks may have values of a dropped namesake."""
    made: tuple[str, ...] = ()
    """Tables that are made from partitions, with their rows (MariaDB)."""
    gone: tuple[str, ...] = ()
    """Tables that become partitions (MariaDB)."""
    reshaped: bool = False
    """Whether columns were added or dropped: without a key the whole row is the id, so all ids change."""
    optional: bool = False
    """Whether it is CREATE TABLE IF NOT EXISTS, which is in the log even if the table existed."""
    xid: str = ""

    def lowered(self) -> Statement:
        """Return the statement with table names in lower case, as a server with lower_case_table_names = 1 has them."""
        tables, made, gone = (tuple(map(str.lower, names)) for names in (self.tables, self.made, self.gone))
        renamed = tuple((old.lower(), new.lower()) for old, new in self.renamed)
        return replace(self, tables=tables, made=made, gone=gone, renamed=renamed)


def read_statement(sql: str, schema: str) -> Statement:
    """Parse a statement of the binlog; `schema` is its session's current database."""
    words = Words(sql)
    if words.take("set", "statement"):
        while words and not words.take("for"):
            words.next()
    first = words.next().lower()
    read = _READ.get(first)
    return read(words, schema) if read else Statement("other")


def _create(words: Words, schema: str) -> Statement:
    words.take("or", "replace")
    if not words.take("table"):
        return Statement("other")
    optional = words.take("if", "not", "exists")
    return Statement("create", (words.table(schema),), optional=optional)


def _drop(words: Words, schema: str) -> Statement:
    if words.take("database") or words.take("schema"):
        words.take("if", "exists")
        return Statement("drop database", (words.next(),))
    if words.take("index"):
        words.take("if", "exists")
        if words.next().lower() == "primary" and words.take("on"):
            return Statement("alter", (words.table(schema),), effect="rows")
        return Statement("other")
    if not (words.take("table") or words.take("tables")):
        return Statement("other")
    words.take("if", "exists")
    return Statement("drop", tuple(clause.table(schema) for clause in words.clauses()))


def _truncate(words: Words, schema: str) -> Statement:
    words.take("table")
    return Statement("truncate", (words.table(schema),))


def _rename(words: Words, schema: str) -> Statement:
    if not (words.take("table") or words.take("tables")):
        return Statement("other")
    words.take("if", "exists")
    pairs = []
    for clause in words.clauses():
        old = clause.table(schema)
        while clause and not clause.take("to"):  # WAIT n, NOWAIT
            clause.next()
        pairs.append((old, clause.table(schema)))
    return Statement("rename", renamed=tuple(pairs))


def _alter(words: Words, schema: str) -> Statement:
    ignore = False
    while words.peek() in ("online", "offline", "ignore"):
        ignore |= words.next().lower() == "ignore"
    if not words.take("table"):
        return Statement("other")
    words.take("if", "exists")
    table = words.table(schema)
    if words.take("wait"):
        words.next()
    words.take("nowait")
    found = Alteration(schema, "rows" if ignore else "none")  # IGNORE (MariaDB) deletes rows that violate a new key
    for clause in words.clauses():
        found.clause(clause)
    return Statement(
        "alter",
        (table, *found.exchanged),
        ((table, found.renamed),) if found.renamed else (),
        found.effect,
        tuple(found.columns),
        tuple(found.added),
        tuple(found.made),
        tuple(found.gone),
        found.reshaped,
    )


@dataclass(slots=True)
class Alteration:
    """Collects what the clauses of one ALTER TABLE do together."""

    schema: str
    effect: Effect = "none"
    renamed: str = ""
    columns: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    reshaped: bool = False
    exchanged: list[str] = field(default_factory=list)

    def clause(self, words: Words) -> None:
        """Take in one clause of an ALTER TABLE."""
        first = words.next().lower()
        known = _CLAUSES.get(first)
        if known is not None:
            known(self, words)
        elif first in ("truncate", "import", "discard"):
            self._does("rows")
        elif first in ("change", "modify"):
            words.take("column")
            words.take("if", "exists")
            self.columns.append(words.next().lower())
            self._does("rows" if words.has("primary") else "values")
        elif first not in _HARMLESS:
            self._does("values")

    def _does(self, effect: Effect) -> None:
        self.effect = "rows" if "rows" in (effect, self.effect) else effect

    def _add(self, words: Words) -> None:
        if words.peek() == "primary" or (words.peek() == "constraint" and words.has("primary")):
            return self._does("rows")
        if words.peek() in _INDEXES or words.take("partition"):
            return None
        self.reshaped = True
        if words.has("primary"):
            return self._does("rows")
        words.take("column")
        words.take("if", "not", "exists")
        for column in words.clauses() if words.take("(") else [words]:
            self._add_column(column)
        return None

    def _add_column(self, words: Words) -> None:
        """Take in a new column.  Without NOT NULL and DEFAULT it is null in every row, as sinks assume."""
        name = words.next().lower()
        # With explicit_defaults_for_timestamp = OFF, which the log does not show, a TIMESTAMP gets a value by itself.
        filled = words.has("timestamp") and not words.has("null")
        if filled or words.has("not", "default", "as", "generated", "auto_increment", "serial"):
            self._does("values")
        else:
            self.added.append(name)

    def _drop(self, words: Words) -> None:
        if words.peek() in ("primary", "partition"):
            return self._does("rows")
        if words.peek() in _INDEXES:
            # DROP INDEX `PRIMARY` drops the primary key.
            return self._does("rows") if "primary" in map(str.lower, words.rest()) else None
        words.take("column")
        words.take("if", "exists")
        self.columns.append(words.next().lower())
        self.reshaped = True
        return None

    def _rename(self, words: Words) -> None:
        if words.peek() in ("index", "key"):
            return
        if words.take("column"):
            words.take("if", "exists")
            self.columns.append(words.next().lower())
            self._does("values")
            return
        if not words.take("to"):
            words.take("as")
        words.take("=")
        self.renamed = words.table(self.schema)

    def _alter_column(self, words: Words) -> None:
        """Do nothing: SET DEFAULT, DROP DEFAULT and an index's visibility change no row."""

    def _exchange(self, words: Words) -> None:
        """Take in the exchange of a partition and a table."""
        while words and not words.take("table"):
            words.next()
        self.exchanged.append(words.table(self.schema))
        self._does("rows")

    def _convert(self, words: Words) -> None:
        """Take in CONVERT: to a character set, a partition to a table, or a table to a partition.

        A character set that lacks some characters changes texts, and so ids."""
        if words.take("to"):
            return self._does("values" if words.has("utf8mb4") else "rows")
        if words.take("table"):
            self.gone.append(words.table(self.schema))
        while words and not words.take("to", "table"):
            words.next()
        if words:
            self.made.append(words.table(self.schema))
        return self._does("rows")


_CLAUSES = {
    "add": Alteration._add,
    "drop": Alteration._drop,
    "rename": Alteration._rename,
    "alter": Alteration._alter_column,
    "exchange": Alteration._exchange,
    "convert": Alteration._convert,
}


def _write(words: Words, schema: str) -> Statement:
    return Statement("write", tuple(sorted({_unquoted(word) for word in words.rest()})))


def _xa(words: Words, schema: str) -> Statement:
    does = words.next().lower()
    xid = "".join(word for word in words.rest() if word.lower() not in ("one", "phase"))
    if does in ("commit", "rollback"):
        return Statement("commit" if does == "commit" else "rollback", xid=xid)
    return Statement("other", xid=xid)


_READ = {
    "create": _create,
    "drop": _drop,
    "truncate": _truncate,
    "rename": _rename,
    "alter": _alter,
    "xa": _xa,
    **dict.fromkeys(("insert", "update", "delete", "replace", "load", "with", "call", "select", "do"), _write),
}
