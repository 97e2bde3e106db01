"""What a writer has finished in a folder: one small file, replaced as a whole, that decides everything.

    _tailrace/<pipeline>.<writer>.json       epoch, offsets, number, moves, claimed, keep
    _tailrace/<pipeline>.<writer>.folders    the names of the namespaces' folders that it has written into

The parts of a batch are staged first.  Replacing this file, with the new offsets and with `moves`, the folders that are
to get their final names, is the moment the batch is finished.  Then the writer moves them, each as a whole.  After a
crash the next writer moves what was not moved yet.  So a batch is there once, and its offsets are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tailrace.adaptors.file.names import OWN, batch_name, batch_number
from tailrace.adaptors.file.sink.disk import Disk
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import Damaged


class Finished(msgspec.Struct, frozen=True):
    """As it is kept.  `moves` are (from, to), relative to the writer's folder; `claimed`: the epoch has begun, and the
    offsets are still those of the one before."""

    epoch: int = 0
    offsets: dict[str, Any] = {}
    number: int = 0
    moves: tuple[tuple[str, str], ...] = ()
    claimed: bool = False
    keep: str = "changes"

    @property
    def fence(self) -> Fence:
        """Which runs may still change it."""
        never = not self.offsets and (self.claimed or not self.epoch)
        return Fence(self.epoch, None if never else self.offsets, self.claimed)


def kept_in(root: Path, pipeline: str, writer: str) -> Path:
    """The file of a writer."""
    return root / OWN / f"{pipeline}.{writer}.json"


def read(path: Path) -> Finished | None:
    """What is kept; None if nothing was ever finished."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Finished)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{path} is not what was written there: {error}", where=str(path)) from None


def roll_forward(root: Path, finished: Finished, disk: Disk) -> None:
    """Move what was decided to be moved, and is still where it was staged."""
    for old, new in finished.moves:
        if (root / old).is_dir():
            disk.make_folder((root / new).parent)
            disk.move(root / old, root / new)


def next_number(root: Path, finished: Finished | None) -> int:
    """The number of the next batch; where nothing is kept, after the highest that is in the folder."""
    if finished is not None:
        return finished.number + 1
    return 1 + max((batch_number(found.name) for found in root.glob("*/batch-*")), default=0)


def moves(
    staged: Mapping[str, str], number: int, pipeline: str, writer: str, below: str = ""
) -> tuple[tuple[str, str], ...]:
    """Where staged folders (namespace's folder → where it is) go, in a folder below the writer's."""
    name = batch_name(number, pipeline, writer)
    return tuple((old, f"{below}{folder}/{name}") for folder, old in sorted(staged.items()))


def note_folders(path: Path, finished: Finished, disk: Disk) -> None:
    """Keep which namespaces' folders have been written into; `path` is the writer's file.

    That is done once they are there, so none is missed that never was."""
    known = folders(path)
    if more := {Path(new).parent.name for _, new in finished.moves} - known:
        disk.replace(path.with_suffix(".folders"), msgspec.json.encode(sorted(known | more)))


def folders(path: Path) -> set[str]:
    """The namespaces' folders that have been written into."""
    try:
        return msgspec.json.decode(path.with_suffix(".folders").read_bytes(), type=set[str])
    except FileNotFoundError:
        return set()
    except msgspec.DecodeError as error:
        raise Damaged(f"{path}: the list of folders is not what was written there: {error}", where=str(path)) from None
