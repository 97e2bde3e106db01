"""Names: of tables as namespaces, and as SQL writes them."""

from __future__ import annotations

from tailrace.adaptors.sql.names import namespace, parts

__all__ = ["literal", "namespace", "parts", "quote"]


def quote(*parts: str) -> str:
    """A name as SQL writes it, its parts joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def literal(text: str) -> str:
    """A text as SQL writes it, whatever the session's sql_mode says of backslashes."""
    return f"_utf8mb4 X'{text.encode().hex()}'" if "\\" in text else "'" + text.replace("'", "''") + "'"
