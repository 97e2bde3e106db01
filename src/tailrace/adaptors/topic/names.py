"""Names of topics for namespaces, and which namespace each topic belongs to.

    $Namespace-<topic id>, 0    namespace, adopted: the one namespace whose messages the topic holds

`topic_name` is injective: two namespaces never share a topic, and no namespace gets the name of a topic that a pipeline
keeps for itself.  Earlier versions wrote every special character as '-'.  A topic that holds records under such a
former name stays the topic of the first namespace that asks for it (`adopted`).  A second namespace that was written
there, too, is refused.
"""

from __future__ import annotations

import hashlib
import re

from tailrace.coordination import guard
from tailrace.errors import NotReady, UnknownTopic
from tailrace.home import Home
from tailrace.log.catalog import check_name
from tailrace.log.topic import Topic
from tailrace.log.write.source_append import reader_key
from tailrace.storage.tables import Absent, Item, Key, Put

RESERVED = ("log", "dead", "actions")
"""What follows the pipeline's name and '-' in the names of the topics that a pipeline keeps for itself."""
MAX_NAME_BYTES = 200
_DOT = re.compile(rf"\.(?=[A-Za-z0-9_])(?!(?:{'|'.join(RESERVED)})\Z)")


def topic_name(namespace: str) -> str:
    """The topic of a namespace: a dot becomes '-', any other byte that a topic's name cannot have '--' and two hex
    digits.

    A dot becomes '--2E' where '-' would be ambiguous (before such a byte, at the end) or reserved (before a last part
    that names a pipeline's own topic).  A name that would be too long ends in a hash."""
    parts = _DOT.split(namespace)
    text = "-".join(_escaped(part) for part in parts) or "-"
    if len(text) <= MAX_NAME_BYTES:
        return text
    return f"{text[:150]}--H{hashlib.sha256(namespace.encode(errors='surrogateescape')).hexdigest()[:40]}"


def _escaped(part: str) -> str:
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte == 0x5F else f"--{byte:02X}"
        for byte in part.encode(errors="surrogateescape")
    )


def former_name(namespace: str) -> str:
    """The name that earlier versions gave to the topic of a namespace."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:MAX_NAME_BYTES] or "-"


def is_internal(home: Home, name: str) -> bool:
    """Whether a topic is one that a pipeline keeps for itself: its commit log, dead letters or operators' actions."""
    pipeline, _, kind = name.rpartition("-")
    return bool(pipeline) and kind in RESERVED and home.store.run(guard.read(reader_key(pipeline))) is not None


def check_topic(home: Home, name: str) -> str:
    """Return the name of a topic that a sink may write to.  Raises `NotReady` for a topic that a pipeline keeps for
    itself."""
    if is_internal(home, check_name("topic", name)):
        pipeline = name.rpartition("-")[0]
        raise NotReady(
            f"the pipeline {pipeline!r} keeps the topic {name!r} for itself, and messages of a sink would break it; "
            "name another topic"
        )
    return name


def topic_of(home: Home, name: str, partitions: int) -> Topic:
    """Return a topic, created if it does not exist.  An existing topic keeps its number of partitions."""
    return _found(home, name) or home.topic(name, partitions)


def _found(home: Home, name: str) -> Topic | None:
    try:
        return home.topic(name)
    except UnknownTopic:
        return None


def topic_for(home: Home, namespace: str, partitions: int) -> Topic:
    """Return the topic that the messages of this namespace, and of no other, go to.  Creates it if it does not exist.

    Raises `NotReady` if the topic belongs to another namespace."""
    name, former = topic_name(namespace), former_name(namespace)
    if name != former and _found(home, name) is None and (topic := _former(home, former)) is not None:
        owner = _claim(topic, namespace)
        if owner["namespace"] == namespace:
            return topic
        if owner["adopted"]:
            raise _shared(topic, owner["namespace"], namespace)
    topic = topic_of(home, check_topic(home, name), partitions)
    owner = _claim(topic, namespace)
    if owner["namespace"] != namespace:
        raise _shared(topic, owner["namespace"], namespace)
    return topic


def _former(home: Home, name: str) -> Topic | None:
    """The topic under its former name, if it has records and no pipeline keeps it for itself."""
    if is_internal(home, name) or (topic := _found(home, name)) is None:
        return None
    return topic if any(end for _, end in topic.ends().values()) else None


def _claim(topic: Topic, namespace: str) -> Item:
    """Return the item with the namespace that a topic belongs to.  A topic that belongs to none belongs to this one
    from now on."""
    key = Key(f"$Namespace-{topic.id}")
    item = topic.store.run(guard.read(key))
    if item is None:
        adopted = any(end for _, end in topic.ends().values())
        put = Put(key, {"namespace": namespace, "adopted": adopted}, (Absent(),))
        item = topic.store.run(guard.settle(key, lambda item: None if item is not None else (put,)))
    assert item is not None
    return item


def _shared(topic: Topic, owner: str, namespace: str) -> NotReady:
    return NotReady(
        f"the topic {topic.name!r} belongs to the namespace {owner!r}, so {namespace!r} cannot be written to it; an "
        "earlier version gave both this name and may have mixed them. Rename one of the two on its way, or begin again "
        f"with a topic for each: `tailrace topic delete {topic.name}`, then `tailrace offset delete PIPELINE WRITER` "
        "has everything delivered again"
    )
