"""Every error tailrace raises, in one tree.

TailraceError
├── BadInput (ValueError)            what the caller gave cannot be used; nothing was written
│   ├── BadName                      a topic, group or stream name
│   ├── BadSetting                   a setting or option, with the nearest right name
│   ├── BadHome                      a home URL
│   ├── BadRecord                    a record, its timestamp, its type
│   ├── BadEvent                     an event: its type, its data, an append of nothing
│   └── TooLarge                     over a limit of the storage or the topic
├── NotThere (LookupError)           what the caller named does not exist
│   ├── UnknownTopic · UnknownPartition · UnknownGroup
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
│   ├── Throttled                    refused for now; nothing happened
│   ├── Unavailable                  cannot be reached, or refused for too long; nothing happened
│   ├── DiskFull                     no space left; nothing happened
│   └── Broken                       failed for good (EIO on fsync): open the home again
├── HomeError                        the home cannot be opened: permissions, credentials, version
├── NotInstalled (ImportError)       something this needs, Java or pyspark, is missing or too old
├── NotReady                         a source or sink is not set up for what is asked; the message says how to
├── PositionLost                     a source no longer has what came after a position: copy afresh
├── Rejected                         a sink cannot hold a row; names its namespace and id
├── Undecodable                      an event that the codec or an upcaster could not read; names stream and index
└── Damaged                          bytes are not what was written: names object, position, offsets
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


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
        """Say which names there are, and the nearest one first."""
        names = sorted(known)
        near = difflib.get_close_matches(given, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        return cls(f"{what} has no {given!r}; {hint}")


class BadHome(BadInput):
    """A home URL that cannot be understood."""


class BadRecord(BadInput):
    """A record that cannot be stored: wrong type, timestamp out of range."""


class BadEvent(BadInput):
    """An event that cannot be stored: no type, data that is not bytes, nothing to append."""


class TooLarge(BadInput):
    """Something over a limit; the message has its size and the limit."""


class NotThere(TailraceError, LookupError):
    """What the caller named does not exist."""


class UnknownTopic(NotThere):
    """No topic has this name."""


class UnknownPartition(NotThere):
    """The topic has no such partition."""


class UnknownGroup(NotThere):
    """No consumer group has this name."""


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


class Throttled(StorageError):
    """Refused for now, and nothing happened: too many requests, or a transaction in the way."""


class Unavailable(StorageError):
    """The storage cannot be reached, or has refused for too long; nothing of this call is acknowledged."""


class DiskFull(StorageError):
    """No space is left on the device; nothing of this call is acknowledged; the next may work once there is room."""


class Broken(StorageError):
    """This handle failed for good (for example EIO on fsync); nothing is acknowledged through it any more."""


class HomeError(TailraceError):
    """The home cannot be opened; the message says what to do."""


class NotInstalled(TailraceError, ImportError):
    """A program or a package that this needs is missing or too old; the message says how to get it."""


class NotReady(TailraceError):
    """A source or sink is not set up for what is asked of it: a right, a setting, a table; waiting does not help."""


class PositionLost(TailraceError):
    """A source no longer has the changes that followed a position; only a fresh copy makes up for them."""


class Rejected(TailraceError):
    """A sink cannot hold a row.  `namespace` and `id` say which ("" where several rows failed and none stands out)."""

    def __init__(self, message: str, *, namespace: str = "", id: str = "") -> None:
        super().__init__(message)
        self.namespace, self.id = namespace, id


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
