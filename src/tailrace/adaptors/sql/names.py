"""Names: namespaces as names of tables.  A namespace is schema.table, and no two tables have the same one."""

from __future__ import annotations

import re

_PART = re.compile(r'"(?:[^"]|"")*"|[^.]*')


def namespace(schema: str, table: str) -> str:
    """The namespace of a table: schema.table.  A part is quoted only if it has a dot or a quote."""
    return ".".join(_quoted(part) if "." in part or '"' in part else part for part in (schema, table))


def parts(name: str, schema: str = "public") -> tuple[str, str]:
    """The schema and the table of a namespace.  A namespace without a schema is in the given one."""
    first = _PART.match(name)
    assert first is not None, "the pattern matches the empty text"
    if first.end() == len(name):
        return schema, _plain(name)
    return _plain(first[0]), _plain(name[first.end() + 1 :])


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _plain(part: str) -> str:
    quoted = len(part) > 1 and part[0] == part[-1] == '"'
    return part[1:-1].replace('""', '"') if quoted else part
