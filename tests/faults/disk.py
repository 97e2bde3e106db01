"""A model of a disk with a cache: what has been written, what is durable, and what a power cut may leave.

Of what was written to a file since its last sync any 512-byte sectors may be there or not, in any order; of the names
given and taken in a folder since its last sync any may be.  What was synced is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from tests.faults.recorder import Op

SECTOR = 512
Keep = Callable[[], bool]
"""Whether the next piece that is not durable has reached the disk."""


class File:
    """Bytes: as last synced, and what was done to them since."""

    def __init__(self) -> None:
        self._durable = bytearray()
        self._since: list[tuple[int, bytes] | int] = []

    def change(self, change: tuple[int, bytes] | int) -> None:
        """Write bytes at a position, or cut or extend to a size."""
        self._since.append(change)

    def sync(self) -> None:
        """Make everything durable."""
        self._durable = self._after(lambda: True, SECTOR)
        self._since.clear()

    def after_cut(self, keep: Keep, unit: int) -> bytes:
        """What may be left; `unit` is the size of the pieces that get lost."""
        return bytes(self._after(keep, unit))

    def _after(self, keep: Keep, unit: int) -> bytearray:
        data = bytearray(self._durable)
        for change in self._since:
            if isinstance(change, int):
                if keep():
                    _resize(data, change)
            else:
                _write(data, *change, keep, unit)
        return data


def _write(data: bytearray, position: int, new: bytes, keep: Keep, unit: int) -> None:
    end = position + len(new)
    for piece in range(position // unit * unit, end, unit):
        low, high = max(piece, position), min(piece + unit, end)
        if low < high and keep():
            if len(data) < high:
                _resize(data, high)
            data[low:high] = new[low - position : high - position]


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


class Folder:
    """Names: as last synced, and those given and taken since."""

    def __init__(self) -> None:
        self._durable: dict[str, File | Folder] = {}
        self._since: list[tuple[str, File | Folder | None]] = []
        self.now: dict[str, File | Folder] = {}

    def set(self, name: str, node: File | Folder | None) -> None:
        """Give a name to a file or folder, or take it (None)."""
        self._since.append((name, node))
        if node is None:
            self.now.pop(name, None)
        else:
            self.now[name] = node

    def sync(self) -> None:
        """Make the names durable."""
        self._durable = dict(self.now)
        self._since.clear()

    def after_cut(self, target: Path, keep: Keep, unit: int) -> None:
        """Write to a folder what may be left."""
        left: dict[str, File | Folder | None] = dict(self._durable)
        lost: set[str] = set()
        for name, node in self._since:
            if name not in lost and keep():
                left[name] = node
            else:
                lost.add(name)
        target.mkdir(exist_ok=True)
        for name, node in left.items():
            if isinstance(node, Folder):
                node.after_cut(target / name, keep, unit)
            elif node is not None:
                (target / name).write_bytes(node.after_cut(keep, unit))


class Disk:
    """A home's folder in the model; `do` repeats what was recorded."""

    def __init__(self) -> None:
        self.root = Folder()

    def do(self, op: Op) -> None:
        """Repeat one operation."""
        path = PurePosixPath(op.path)
        if op.what == "sync_folder":
            self._folder(path).sync()
        elif op.what in ("create", "mkdir", "delete"):
            kinds: dict[str, Callable[[], Any]] = {"create": File, "mkdir": Folder, "delete": lambda: None}
            self._folder(path.parent).set(path.name, kinds[op.what]())
        elif op.what in ("write", "truncate", "sync"):
            file = self._folder(path.parent).now[path.name]
            assert isinstance(file, File)
            if op.what == "sync":
                file.sync()
            else:
                file.change(op.details)

    def after_cut(self, target: Path, rng: random.Random) -> None:
        """Write to a folder one of the states that a power cut now may leave."""
        share = rng.choice([0.0, 0.0, 0.05, 0.5, 0.95, 1.0])
        unit = rng.choice([SECTOR, 4096, 8192, 1 << 20])
        self.root.after_cut(target, lambda: rng.random() < share, unit)

    def _folder(self, path: PurePosixPath) -> Folder:
        at = self.root
        for part in path.parts:
            inner = at.now[part]
            assert isinstance(inner, Folder)
            at = inner
        return at
