"""Names: namespaces as names of tables, and names and texts in PostgreSQL's SQL."""

from __future__ import annotations

from tailrace.adaptors.sql.names import namespace, parts

__all__ = ["literal", "namespace", "parts", "quote"]


def quote(*parts: str) -> str:
    """A name as SQL writes it, quoted, with its parts joined by dots."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal(text: str) -> str:
    """A text as a SQL literal, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"
