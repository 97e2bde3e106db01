"""Names of tables, as namespaces and quoted for SQL; text literals of SQL."""

from __future__ import annotations

from tailrace.adaptors.sql.names import namespace, parts

__all__ = ["literal", "namespace", "parts", "quote"]


def quote(*parts: str) -> str:
    """Quote the parts of a name for SQL and join them by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def literal(text: str) -> str:
    """Return a text as a literal of SQL, which means the same under every sql_mode for backslashes."""
    return f"_utf8mb4 X'{text.encode().hex()}'" if "\\" in text else "'" + text.replace("'", "''") + "'"
