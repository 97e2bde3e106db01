"""Scrubbing the items that say what has been appended, and how far it was delivered: do the heads say the same?

Each of the first has the id and the page of the last chunk that was appended with it in one transaction: named
producers, and of pipelines the readers, the pieces of a copy, and the sinks that write topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.coordination import guard
from tailrace.errors import UnknownTopic
from tailrace.log.append import Log
from tailrace.log.damage import Damage
from tailrace.log.holds import holds_key
from tailrace.log.intake import log_name
from tailrace.log.looking import find
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item, Key

GUARDS = ("$Producer-", "$Reader-", "$Pieces-", "$Sink-")
PRODUCER, READER, PIECES, SINK = GUARDS
ID = 24
"""Digits of a chunk's id; what a reader or sink writes without records has a shorter one, or none."""


def scrub_guard(key: Key, names: Mapping[str, str], notes: list[str]) -> Steps[list[Damage]]:
    """The last chunk of a producer, reader, piece or sink is in the log, or retention has removed it.  `names`: of the
    topics there are, by id."""
    seen: Item | None = None
    while True:
        item = yield from guard.truth(key)
        if item is None or len(item["id"]) != ID:
            return []
        if item == seen:
            break
        seen = item
        ids = list(_topics(key, item, names))
        gone = 0
        for id in ids:
            try:
                if (yield from _is_in(Log(id, id), item)):
                    return []
            except UnknownTopic:
                gone += 1
        if gone == len(ids):
            return []
    where, text = f"item {key.p}/{key.i}", "is stored by its own account, and is not in the log"
    if key.p.startswith(SINK):
        notes.append(f"{where}: its last batch {text} of any topic; unless its topic was deleted, records are lost")
        return []
    what = f"its batch {item['seq']}" if "seq" in item else f"what was copied ({item['records']} records)"
    return [Damage("producer", f"{what} {text}", ", ".join(names[id] for id in ids if id in names), where)]


def _is_in(log: Log, item: Item) -> Steps[bool]:
    head = yield from log.head()
    return (yield from find(log, head, item["id"], -1, [item["page"]])) is not None


def _topics(key: Key, item: Item, names: Mapping[str, str]) -> Iterable[str]:
    """The ids of the topics in one of which the chunk must be."""
    if key.p.startswith(PRODUCER):
        return item.get("topics") or [key.p.removeprefix(PRODUCER).partition("_")[0]]
    if key.p.startswith(SINK):
        return names
    name = log_name(key.p.removeprefix(READER).removeprefix(PIECES))
    return [id for id, other in names.items() if other == name]


def scrub_holders(log: Log, notes: list[str]) -> Steps[list[Damage]]:
    """Nobody who holds a topic, as a pipeline's writer does, has acknowledged what was never in it."""
    said = yield from guard.read(holds_key(log.id))
    marks: list[Item] = []
    for p in said["by"] if said is not None else ():
        marks += yield from guard.read_all(p)
    try:
        head = yield from log.head()  # after the marks: its ends only rise
    except UnknownTopic:
        return []
    out = []
    for mark in marks:
        at, end = max([mark["low"], *mark.get("ahead", {}).values()]), head.next.get(mark["i"], 0)
        if at < end:
            continue
        text = f"everything up to {at} of partition {mark['i']} is acknowledged, which ends at {end}"
        if mark.get("word"):
            notes.append(f"item {mark['p']}/{mark['i']}: {text}, as an operator has said")
        else:
            out.append(Damage("position", text, log.name, f"item {mark['p']}/{mark['i']}"))
    return out
