"""Names of indexes for namespaces.

An index is in lower case and does not begin with '.', '_' or '-'.  Whatever of a namespace is not a small letter, a
digit, '.', '_' or '-' is written as '~' and two digits for each byte, so no two namespaces have the same: public.Orders
is public.~4frders.
"""

from __future__ import annotations

import hashlib
import re

from tailrace.errors import NotReady

SLOT = "{namespace}"
MAX_NAME_BYTES = 200
"""Bytes; OpenSearch has 255 with what the template adds."""
_OTHER = re.compile(rb"^[._-]|[^a-z0-9._-]")
_INDEX = re.compile(r"[^\\/*?\"<>|\s,#:A-Z_.+-][^\\/*?\"<>|\s,#:A-Z]*")


def escaped(namespace: str) -> str:
    """A namespace as (a part of) the name of an index; one that gets too long ends in its hash."""
    raw = namespace.encode(errors="surrogateescape")
    text = _OTHER.sub(lambda match: f"~{match[0][0]:02x}".encode(), raw).decode() or "~"
    if len(text) <= MAX_NAME_BYTES:
        return text
    return f"{text[:140]}~h{hashlib.sha256(raw).hexdigest()[:40]}"


def index_name(template: str, namespace: str) -> str:
    """The index of a namespace; `NotReady` for a template that makes a name that no index can have."""
    name = template.replace(SLOT, escaped(namespace))
    if _INDEX.fullmatch(name) is None or len(name.encode()) > 255:
        raise NotReady(
            f"index = {template!r}: no index can be called {name!r}: lower case, up to 255 bytes, without spaces and "
            "\\ / * ? \" < > | , # :, and not beginning with '.', '_', '-' or '+'"
        )
    return name
