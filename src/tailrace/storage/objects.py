"""Objects: immutable bytes under unique names, on disk, in memory, on S3, GCS or Azure.

An object's name is never the commit point of anything: bytes are first put under a name that nothing refers to, and
they count once a guarded write to a table names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from tailrace.errors import HomeError

Bytes: TypeAlias = bytes | bytearray | memoryview


class ObjectInfo(NamedTuple):
    """What a listing says about one object."""

    name: str
    size: int


class Objects(Protocol):
    """What every object backend does.  Calls block and may come from any thread."""

    def put(self, name: str, parts: Sequence[Bytes]) -> None:
        """Store the joined parts under a name never used before; when this returns they are durable.

        `TimedOut`: the bytes may be there, or arrive later.  A name is used once, so the caller need not know."""

    def get(self, name: str) -> memoryview:
        """All bytes of an object, without a copy where the backend can.  `ObjectMissing` if it is not there."""

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of several (position, length) ranges of one object, in one request where possible.

        A shorter object gives shorter bytes: the caller checks them."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose names start with `prefix` (a folder, ending in '/'), in any order."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing one is no error."""

    def close(self) -> None:
        """Give up connections and mappings not in use."""


class NoObjects:
    """An `Objects` that refuses every call: for a program that uses only a home's table."""

    def put(self, name: str, parts: Sequence[Bytes]) -> NoReturn:
        """Refused."""
        raise _no_bucket()

    def get(self, name: str) -> NoReturn:
        """Refused."""
        raise _no_bucket()

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> NoReturn:
        """Refused."""
        raise _no_bucket()

    def list(self, prefix: str) -> NoReturn:
        """Refused."""
        raise _no_bucket()

    def delete(self, names: Iterable[str]) -> NoReturn:
        """Refused."""
        raise _no_bucket()

    def close(self) -> None:
        """Does nothing."""


def _no_bucket() -> HomeError:
    return HomeError("this program has a home's table only, and no bucket; open the whole home with its URL")
