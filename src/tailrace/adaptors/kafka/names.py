"""Names of topics: those for namespaces, and those of tailrace's own topics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.errors import NotReady

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
INTERNAL = "__"
"""The prefix of topics that hold no data of users: Kafka's internal topics, and tailrace's own."""


def namespaces_of(topics: Iterable[str], prefix: str) -> list[str]:
    """The namespaces of these topics: the names of data topics that have the prefix, with the prefix removed."""
    found = [name for name in topics if name.startswith(prefix) and not name.startswith(INTERNAL)]
    return [name.removeprefix(prefix) for name in found if name != prefix]


def topic_for(namespace: str, prefix: str) -> str:
    """The topic of a namespace: the prefix and the namespace's name.  `NotReady` if no topic can have that name."""
    name = f"{prefix}{namespace}"
    if _TOPIC.fullmatch(name) is None or name in (".", ".."):
        raise NotReady(
            f"no topic can be called {name!r}: letters, digits, '.', '_' and '-', up to 249; rename the namespace on "
            "its way, remap({…}), or name one topic for all"
        )
    return name


def own_topic(state: str, *names: str) -> str:
    """The name of one of tailrace's own topics.  Different lists of names give different topics."""
    return ".".join([state, *(re.sub(r"[^A-Za-z0-9-]", _escaped, name) for name in names)])


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"_{byte:02x}" for byte in match[0].encode(errors="surrogateescape"))
