"""Every error tailrace raises, in one tree.

TailraceError
├── BadInput (ValueError)            what the caller gave cannot be used; nothing was written
│   ├── BadName                      a topic, group or stream name
│   ├── BadSetting                   a setting or option, with the nearest right name
│   ├── BadHome                      a home URL
│   ├── BadRecord                    a record, its timestamp, its type
│   ├── BadEvent                     an event: its type, its data, an append of nothing
│   ├── BadModel                     a model that no table can hold, or that differs from its table
│   ├── BadToken                     a place in a change stream that cannot be gone on from
│   └── TooLarge                     over a limit of the storage or the topic
├── NotThere (LookupError)           what the caller named does not exist
│   ├── UnknownTopic · UnknownQueue · UnknownPartition · UnknownGroup · UnknownTable
│   ├── IteratorExpired              a place in a shard that was not used for 15 minutes
│   ├── Trimmed                      changes that are no longer kept
│   └── ObjectMissing                an object that should be there is not
├── AlreadyThere                     a topic, an object, a member with this name exists
├── OutOfRange (IndexError)          an offset below the floor or beyond the end
├── Conflict                         a condition did not hold; carries the stored item
│   ├── Fenced                       a newer owner or life of the same name has taken over
│   ├── Expected                     the next offset was not the expected one
│   ├── VersionConflict              a stream was not at the expected version
│   └── TooManyConflicts             every attempt of a decision met another writer's
├── Busy                             another process is at it, and only one may be
├── Closed                           the producer, consumer or home was closed
├── OutcomeUnknown                   a write without an answer, and its trace is gone
├── StorageError (OSError)           the storage could not do it
│   ├── TimedOut (TimeoutError)      sent, no answer: it may have happened, or may yet
│   │   └── GaveUp                   tried again and again, without an answer for a minute
│   ├── Throttled                    refused for now; nothing happened
│   ├── Unavailable                  cannot be reached, or refused for too long; nothing happened
│   ├── DiskFull                     no space left; nothing happened
│   ├── TooManyFiles                 no file descriptor left (ulimit -n); nothing happened
│   └── Broken                       failed for good (EIO on fsync): open the home again
├── OutOfMemory (MemoryError)        something is larger than the memory there is; nothing is damaged
├── HomeError                        the home cannot be opened: permissions, credentials, version
├── NotInstalled (ImportError)       something this needs, Java or pyspark, is missing or too old
├── NotReady                         a source or sink is not set up for what is asked; the message says how to
├── PositionLost                     a source no longer has what came after a position: copy afresh
├── Diverged                         a sink and the home contradict each other: one was restored from a backup
├── Rejected                         a sink cannot hold a row; names its namespace and id
├── MissingEvents                    the feed's index lacks events that the store has; names streams and indices
├── ForeignIndex                     the feed's index in a home's table was made for another home
├── BadItem                          an item of a table that does not fit its model; names table and key
├── HandlerFailed                    a handler failed for a record as often as it may; names unit and record
├── HandlerStuck                     a handler has been at one record for longer than it may
├── Undecodable                      an event that the codec or an upcaster could not read; names stream and index
└── Damaged                          bytes are not what was written: names object, position, offsets
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

MOST_COMPARED, MOST_SHOWN = 1000, 50
"""Names that an error about an unknown one is compared with, and names that it lists: at most."""


def nearest(given: str, names: Sequence[str]) -> str | None:
    """The name that the caller may have meant, for an error about an unknown one; of very many names only those with
    the same beginning are compared."""
    if len(names) > MOST_COMPARED:
        names = [name for name in names if name[:2] == given[:2]][:MOST_COMPARED]
    return next(iter(difflib.get_close_matches(given, names, n=1)), None)


class TailraceError(Exception):
    """The root: `except TailraceError` catches whatever tailrace says no with."""


class BadInput(TailraceError, ValueError):
    """What the caller gave cannot be used; nothing was written."""


class BadName(BadInput):
    """A name that cannot be used for a topic, group, stream or producer."""


class BadSetting(BadInput):
    """A setting or option that is unknown or has an unusable value."""

    @classmethod
    def unknown(cls, what: str, given: str, known: Iterable[str]) -> BadSetting:
        """The error for an unknown name: it says which names there are, and the nearest one first."""
        names = sorted(known)
        near = nearest(given, names)
        shown = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
        hint = f"did you mean {near!r}?" if near else f"there are: {shown}"
        return cls(f"{what} has no {given!r}; {hint}")


class BadHome(BadInput):
    """A home URL that cannot be understood."""


class BadRecord(BadInput):
    """A record that cannot be stored: wrong type, timestamp out of range."""


class BadEvent(BadInput):
    """An event that cannot be stored: no type, data that is not bytes, nothing to append."""


class BadModel(BadInput):
    """A model that no table can hold, or that differs from the table there is."""


class BadToken(BadInput):
    """A token of a change stream that is damaged, or belongs to another table or stream."""


class TooLarge(BadInput):
    """Something over a limit; the message has its size and the limit."""


class NotThere(TailraceError, LookupError):
    """What the caller named does not exist."""


class UnknownTopic(NotThere):
    """No topic has this name."""


class UnknownQueue(NotThere):
    """No queue has this name."""


class UnknownPartition(NotThere):
    """The topic has no such partition."""


class UnknownGroup(NotThere):
    """No consumer group has this name."""


class UnknownTable(NotThere):
    """No table has this name."""


class IteratorExpired(NotThere):
    """An iterator of a shard is older than 15 minutes; another can be made after the last sequence number."""


class Trimmed(NotThere):
    """Changes that a stream no longer keeps."""


class ObjectMissing(NotThere):
    """An object is not there; `name` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(f"object {name!r} is not there")
        self.name = name


class AlreadyThere(TailraceError):
    """Something with this name exists already."""


class OutOfRange(TailraceError, IndexError):
    """An offset below the floor (removed) or beyond the end (not yet written)."""

    def __init__(self, message: str, *, floor: int | None = None, end: int | None = None) -> None:
        super().__init__(message)
        self.floor, self.end = floor, end


class Conflict(TailraceError):
    """A condition did not hold.  `index` is the action that failed, `item` what is stored there (None: nothing)."""

    def __init__(self, message: str, *, index: int = 0, item: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.index, self.item = index, item


class Fenced(Conflict):
    """A newer owner of the same thing has taken over; this one must stop."""


class Expected(Conflict):
    """A conditional append found another next offset than the expected one; `actual` is what it found."""

    def __init__(self, message: str, *, actual: Mapping[int, int]) -> None:
        super().__init__(message)
        self.actual = dict(actual)


class VersionConflict(Conflict):
    """A stream was not as the writer expected it; `version` is where it is now."""

    def __init__(self, message: str, *, stream: str, version: int) -> None:
        super().__init__(message)
        self.stream, self.version = stream, version


class TooManyConflicts(Conflict):
    """A decision met another writer's on every attempt; nothing of it is stored."""


class Busy(TailraceError):
    """Another process is doing this already, and only one may."""


class Closed(TailraceError):
    """The producer, consumer or home was closed before this call."""


class OutcomeUnknown(TailraceError):
    """A write had no answer, and upkeep has since removed where it would be seen."""


class StorageError(TailraceError, OSError):
    """The storage could not do what was asked."""


class TimedOut(StorageError, TimeoutError):
    """A request was sent and not answered: it may have happened, or may happen yet."""


class GaveUp(TimedOut):
    """Writes of the same items had no answer for a minute, so they are not tried again; they may have happened, or may
    happen yet."""


class Throttled(StorageError):
    """Refused for now, and nothing happened: too many requests, or a transaction in the way."""


class Unavailable(StorageError):
    """The storage cannot be reached, or has refused for too long; nothing of this call is acknowledged."""


class DiskFull(StorageError):
    """No space is left on the device; nothing of this call is acknowledged; the next may work once there is room."""


class TooManyFiles(StorageError):
    """This process has no file descriptor left; nothing of this call is acknowledged; raise the limit (`ulimit -n`)."""


class Broken(StorageError):
    """This handle failed for good (for example EIO on fsync); nothing is acknowledged through it any more."""


class OutOfMemory(TailraceError, MemoryError):
    """Something is larger than the memory of this process; nothing is damaged, and nothing was changed."""


class HomeError(TailraceError):
    """The home cannot be opened; the message says what to do."""


class NotInstalled(TailraceError, ImportError):
    """A program or a package that this needs is missing or too old; the message says how to get it."""


class NotReady(TailraceError):
    """A source or sink is not set up for what is asked of it: a right, a setting, a table; waiting does not help."""


class PositionLost(TailraceError):
    """A source no longer has the changes that followed a position; only a fresh copy makes up for them."""


class Diverged(TailraceError):
    """What a sink keeps and what the home knows of it cannot both be true: one was restored from a backup."""


class Rejected(TailraceError):
    """A sink cannot hold a row.  `namespace` and `id` say which ("" where several rows failed and none stands out)."""

    def __init__(self, message: str, *, namespace: str = "", id: str = "") -> None:
        super().__init__(message)
        self.namespace, self.id = namespace, id


class MissingEvents(TailraceError):
    """Events that did not come with a table's changes; `gaps` says of which streams, and where."""

    def __init__(self, message: str, *, gaps: Iterable[Any]) -> None:
        super().__init__(message)
        self.gaps = tuple(gaps)


class ForeignIndex(TailraceError):
    """The index of the feed, in the home's own table, was made for the events of another home."""


class BadItem(TailraceError):
    """An item that does not fit its model (any more); `table` and `key` say which."""

    def __init__(self, message: str, *, table: str, key: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.table, self.key = table, dict(key)


class HandlerFailed(TailraceError):
    """A consumer's handler failed for a record as often as it may; `unit` and `record` say which."""

    def __init__(self, message: str, *, unit: str, record: str) -> None:
        super().__init__(message)
        self.unit, self.record = unit, record


class HandlerStuck(TailraceError):
    """A consumer's handler has been at one record for longer than `max_handler_seconds`; its units go to others."""


class Undecodable(TailraceError):
    """An event that its codec or an upcaster could not read; `stream` and `index` say which."""

    def __init__(self, message: str, *, stream: str, index: int) -> None:
        super().__init__(message)
        self.stream, self.index = stream, index


class Lost(NamedTuple):
    """Records that cannot be read: those of a partition from `first` up to, and without, `end`."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        some = f"offsets {self.first} to {self.end - 1}" if self.end - self.first > 1 else f"offset {self.first}"
        return f"{some} of partition {self.partition}"


class Damaged(TailraceError):
    """Stored bytes are not what was written.  `where` names the object, item or file, `position` the byte in it;
    where records of a topic are lost with them, `topic` and `lost` say which, exactly."""

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        position: int | None = None,
        topic: str = "",
        lost: Iterable[Lost] = (),
    ) -> None:
        super().__init__(message)
        self.where, self.position, self.topic, self.lost = where, position, topic, tuple(lost)
