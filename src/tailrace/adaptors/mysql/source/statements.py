"""Statements: what those of the binlog do to tables.  They never carry rows.

Only the beginning of a statement is understood, and of ALTER TABLE each clause.  What is not known is taken for
something that changed rows: a table too many is copied again rather than one too few.
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
"""What an alteration does to rows that are there: nothing that a sink would see, changes what they say, or which there
are and by what id they are known."""
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
        """Each with whether it can be a keyword."""
        for token in _TOKEN.finditer(sql):
            if token["name"]:
                self._found.append((token["name"][1:-1].replace("``", "`"), False))
            elif token["text"] or token["word"] or token["sign"]:
                self._found.append((token[0], token["text"] is None))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._found)

    def peek(self) -> str:
        """The next as a keyword; "" at the end, or where it is a name or text in quotes."""
        if not self:
            return ""
        word, plain = self._found[self._at]
        return word.lower() if plain else ""

    def next(self) -> str:
        """The next as it is written."""
        word = self._found[self._at][0] if self else ""
        self._at += 1
        return word

    def take(self, *keywords: str) -> bool:
        """Whether these are next, and then pass over them."""
        start = self._at
        for keyword in keywords:
            if self.peek() != keyword:
                self._at = start
                return False
            self._at += 1
        return True

    def table(self, schema: str) -> str:
        """The namespace of the table that is named next."""
        first = _unquoted(self.next())
        if self.take("."):
            return names.namespace(first, _unquoted(self.next()))
        return names.namespace(schema, first)

    def clauses(self) -> Iterator[Words]:
        """What is left, cut at the commas outside of brackets."""
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
        """What is left, as it is written."""
        return [word for word, _ in self._found[self._at :]]

    def has(self, *keywords: str) -> bool:
        """Whether one of these is anywhere in what is left."""
        return any(plain and word.lower() in keywords for word, plain in self._found[self._at :])


def _unquoted(name: str) -> str:
    """With sql_mode = ANSI_QUOTES names are quoted like this."""
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement does, to which tables; `renamed` has the old and the new name of each."""

    does: Does
    tables: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    effect: Effect = "none"
    columns: tuple[str, ...] = ()
    """Columns that an alteration drops or gives another name, in lower case; of a key they change every id."""
    added: tuple[str, ...] = ()
    """Columns that it adds without values, in lower case: sinks may have those of a dropped one of the same name."""
    made: tuple[str, ...] = ()
    """Tables that come of partitions, with their rows (MariaDB)."""
    gone: tuple[str, ...] = ()
    """Tables that become partitions."""
    reshaped: bool = False
    """Whether rows have other columns: without a key, all of them are the id."""
    optional: bool = False
    """CREATE TABLE IF NOT EXISTS, which is in the log though nothing was created."""
    xid: str = ""

    def lowered(self) -> Statement:
        """As a server with lower_case_table_names = 1 has the names."""
        tables, made, gone = (tuple(map(str.lower, names)) for names in (self.tables, self.made, self.gone))
        renamed = tuple((old.lower(), new.lower()) for old, new in self.renamed)
        return replace(self, tables=tables, made=made, gone=gone, renamed=renamed)


def read_statement(sql: str, schema: str) -> Statement:
    """What a statement of the log does."""
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
    found = Alteration(schema, "rows" if ignore else "none")  # with IGNORE (MariaDB) rows that are in the way go
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
    """What the clauses of one ALTER TABLE do together."""

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
        """Take in what one clause of an ALTER TABLE statement does."""
        first = words.next().lower()
        known = _CLAUSES.get(first)
        if known is not None:
            known(self, words)
        elif first in ("truncate", "import", "discard"):
            self._does("rows")
        elif first in ("change", "modify"):
            words.take("column")
            words.take("if", "exists")
            self.columns += [words.next().lower()] if first == "change" else []
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
        """One that may be null and has no value of its own is null in every row, which sinks know."""
        name = words.next().lower()
        # With explicit_defaults_for_timestamp = OFF, of which the log does not tell, a TIMESTAMP fills itself.
        filled = words.has("timestamp") and not words.has("null")
        if filled or words.has("not", "default", "as", "generated", "auto_increment", "serial"):
            self._does("values")
        else:
            self.added.append(name)

    def _drop(self, words: Words) -> None:
        if words.peek() in ("primary", "partition"):
            return self._does("rows")
        if words.peek() in _INDEXES:
            # The primary key is an index by that name.
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
        """SET DEFAULT, DROP DEFAULT, an index that is hidden: none of it changes a row."""

    def _exchange(self, words: Words) -> None:
        """A partition and a table change places."""
        while words and not words.take("table"):
            words.next()
        self.exchanged.append(words.table(self.schema))
        self._does("rows")

    def _convert(self, words: Words) -> None:
        """To a character set; or a partition to a table, or a table to a partition."""
        if words.take("to"):
            return self._does("values")
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
