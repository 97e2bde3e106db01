"""Names of indexes for namespaces.

An index's name is in lower case and does not begin with '.', '_' or '-'.  Each byte of a namespace that is not a small
letter, a digit, '.', '_' or '-' is written as '~' and two hexadecimal digits, so different namespaces have different
names: public.Orders becomes public.~4frders.
"""

from __future__ import annotations

import hashlib
import re

from tailrace.errors import NotReady

SLOT = "{namespace}"
MAX_NAME_BYTES = 200
"""The most bytes of an escaped namespace: OpenSearch allows 255 together with what the template adds."""
_OTHER = re.compile(rb"^[._-]|[^a-z0-9._-]")
_INDEX = re.compile(r"[^\\/*?\"<>|\s,#:A-Z_.+-][^\\/*?\"<>|\s,#:A-Z]*")


def escaped(namespace: str) -> str:
    """A namespace, escaped for the name of an index.  One that would be too long is cut and ends in its hash."""
    raw = namespace.encode(errors="surrogateescape")
    text = _OTHER.sub(lambda match: f"~{match[0][0]:02x}".encode(), raw).decode() or "~"
    if len(text) <= MAX_NAME_BYTES:
        return text
    return f"{text[:140]}~h{hashlib.sha256(raw).hexdigest()[:40]}"


def index_name(template: str, namespace: str) -> str:
    """The name of a namespace's index; `NotReady` if no index can have the name that the template makes."""
    name = template.replace(SLOT, escaped(namespace))
    if _INDEX.fullmatch(name) is None or len(name.encode()) > 255:
        raise NotReady(
            f"index = {template!r}: no index can be called {name!r}: lower case, up to 255 bytes, without spaces and "
            "\\ / * ? \" < > | , # :, and not beginning with '.', '_', '-' or '+'"
        )
    return name
