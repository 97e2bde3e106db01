"""Dedup ids: a message that is pushed with one is in the queue once, for as long as its message is kept.

    $Dedup-<topic id>, hash    id, token, page: put in the same transaction as the message, if it is not there

`page` is the page of the topic that the message is on, so upkeep removes the item when that page is removed.  A delayed
message is on no page yet; its item gets the page when the message moves into the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tailrace.coordination import guard
from tailrace.coordination.rules import rules
from tailrace.errors import AlreadyThere, BadInput
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.attempt import FinalRefusal
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ACTIONS
from tailrace.storage.tables import Absent, Action, Delete, Equals, Item, Key, Put, Regardless

NO_PAGE = 2**62
"""The page of a message that is still delayed."""
MAX_ID_BYTES = 1024


class Duplicate(AlreadyThere):
    """A message with this dedup id is in the queue already; `id` is the dedup id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"a message with the dedup id {id!r} is in the queue already; leave it out")
        self.id = id


def check_id(id: str) -> str:
    """Return the dedup id, or raise `BadInput` if it cannot be one."""
    if not isinstance(id, str) or not id or len(_bytes(id)) > MAX_ID_BYTES:
        raise BadInput(f"a dedup id is a text of 1 to {MAX_ID_BYTES} bytes, not {id!r:.80}")
    return id


def _bytes(id: str) -> bytes:
    try:
        return id.encode()
    except UnicodeEncodeError:
        raise BadInput(f"a dedup id is text that UTF-8 can say, not {id!r:.80}") from None


def dedup_key(topic_id: str, id: str) -> Key:
    """The key of a dedup id's item."""
    return Key(f"$Dedup-{topic_id}", int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big") >> 2)


def collision(id: str, other: str) -> BadInput:
    """The error for a push whose dedup id has the same hash as another one, so that the push is not taken for a
    duplicate."""
    return BadInput(
        f"the dedup id {id!r} has the same hash as {other!r}, which is in the queue; nothing is stored: add something "
        "to the id and push again"
    )


def is_there(topic_id: str, id: str) -> Steps[bool]:
    """Whether a message with this dedup id is in the queue."""
    item = yield from guard.read(dedup_key(topic_id, id))
    if item is not None and item["id"] != id:
        raise collision(id, item["id"])
    return item is not None


class Once:
    """The dedup ids of one push, stored by its transaction."""

    def __init__(self, log: TopicLog, ids: Sequence[str], token: str, *, delayed: bool = False) -> None:
        self._log, self._ids, self._token, self._delayed = log, ids, token, delayed

    def actions(self, page: int) -> Sequence[Action]:
        """Put each id, under the condition that it is not there."""
        at = NO_PAGE if self._delayed else max(page, self._log.seen.page if self._log.seen else 0)
        new = {"token": self._token, "page": at}
        when = rules({"queue.dedup": Absent()}) or (Regardless(),)
        return [Put(dedup_key(self._log.id, id), {"id": id, **new}, when) for id in self._ids]

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Raise `FinalRefusal` if another push has stored the id first.  If this push's own earlier attempt has,
        return: the append finds itself in the log."""
        yield from ()
        id = self._ids[index]
        if item is not None and item["token"] != self._token:
            raise FinalRefusal(Duplicate(id) if item["id"] == id else collision(id, item["id"]))


def sweep(log: TopicLog) -> Steps[int]:
    """Remove the ids of messages that are no longer kept; returns how many there were."""
    first = (yield from log.head()).first
    p, low, removed = f"$Dedup-{log.id}", 0, 0
    while True:
        items, more = yield from guard.read_range(p, low)
        gone = [item for item in items if item["page"] < first]
        for start in range(0, len(gone), MAX_ACTIONS):
            some = gone[start : start + MAX_ACTIONS]
            yield from guard.attempt(*(Delete(Key(p, item["i"]), (Equals("token", item["token"]),)) for item in some))
        removed += len(gone)
        if more is None:
            return removed
        low = more + 1
