"""Names: namespaces as folders of tables, and writers as folders of ledgers.

    public.orders        public.orders
    a/b ~ %              a~2Fb~20~7E~20~25

The escape is not %XX, because the library deltalake decodes that in some places and not in others."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

_MAX_NAME_BYTES = 200


def folder_of(namespace: str) -> str:
    """The folder of a namespace's table.  Different namespaces have different folders."""
    text = _written(namespace)
    if text[:1] in ("_", ".", ""):
        text = f"~{ord(text[:1] or chr(0)):02X}{text[1:]}"
    if len(text) > _MAX_NAME_BYTES:
        text = (
            f"{text[:_MAX_NAME_BYTES]}~~{hashlib.sha256(namespace.encode(errors='surrogateescape')).hexdigest()[:16]}"
        )
    return text


def ledger_of(pipeline: str, writer: str) -> str:
    """The folder of a writer's ledger."""
    return ".".join(_written(name).replace(".", "~2E") for name in (pipeline, writer))


def _written(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape").replace("~", "%7E").replace("%", "~")
