"""Names: of tables as namespaces, and as SQL writes them."""

from __future__ import annotations

import re

_PART = re.compile(r'"(?:[^"]|"")*"|[^.]*')


def quote(*parts: str) -> str:
    """A name as SQL writes it, its parts joined by dots."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal(text: str) -> str:
    """A text as SQL writes it, where no parameter can be given."""
    return "'" + text.replace("'", "''") + "'"


def namespace(schema: str, table: str) -> str:
    """The namespace of a table: schema.table, with quotes only around what would otherwise read as two names."""
    return ".".join(quote(part) if "." in part or '"' in part else part for part in (schema, table))


def parts(name: str, schema: str = "public") -> tuple[str, str]:
    """The schema and the table of a namespace; one without a schema is in the given one."""
    first = _PART.match(name)
    assert first is not None, "the pattern matches the empty text"
    if first.end() == len(name):
        return schema, _plain(name)
    return _plain(first[0]), _plain(name[first.end() + 1 :])


def _plain(part: str) -> str:
    quoted = len(part) > 1 and part[0] == part[-1] == '"'
    return part[1:-1].replace('""', '"') if quoted else part
