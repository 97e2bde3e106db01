"""The state of a writer: one small file that it replaces atomically, and with which it decides on each batch.

    _tailrace/<pipeline>.<writer>.json       epoch, offsets, number, moves, claimed, keep
    _tailrace/<pipeline>.<writer>.folders    the names of the namespaces' folders that it has written into
    _tailrace/<folder>.truncated             the number of the last truncate of a namespace's folder, for all writers

Tasks stage the part files of a batch first.  The batch is finished at the moment when the writer replaces the file with
one that has the new offsets and `moves`: the staged folders with their final names.  Then the writer moves these
folders.  After a crash the next run moves those that were not moved yet.  So a batch is in the folder once, and its
offsets are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tailrace.adaptors.file.names import OWN, batch_name, batch_number
from tailrace.adaptors.file.sink.disk import Disk
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import Damaged


class Finished(msgspec.Struct, frozen=True):
    """The content of the writer's file.  `moves` are (from, to), relative to the sink's folder.  `claimed` means that
    the epoch has begun, and the offsets are still those of the run before."""

    epoch: int = 0
    offsets: dict[str, Any] = {}
    number: int = 0
    moves: tuple[tuple[str, str], ...] = ()
    claimed: bool = False
    keep: str = "changes"

    @property
    def fence(self) -> Fence:
        """The fence, which says which runs may still change the state."""
        never = not self.offsets and (self.claimed or not self.epoch)
        return Fence(self.epoch, None if never else self.offsets, self.claimed)


def kept_in(root: Path, pipeline: str, writer: str) -> Path:
    """The path of a writer's file."""
    return root / OWN / f"{pipeline}.{writer}.json"


def read(path: Path) -> Finished | None:
    """Read a writer's file; None if there is none.  `Damaged` if it cannot be decoded."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Finished)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{path} is not what was written there: {error}", where=str(path)) from None


def roll_forward(root: Path, finished: Finished, disk: Disk) -> None:
    """Move the folders of the last finished batch that are still in staging."""
    for old, new in finished.moves:
        if (root / old).is_dir():
            disk.make_folder((root / new).parent)
            disk.move(root / old, root / new)


def next_number(root: Path, finished: Finished | None) -> int:
    """The number of the next batch; without a state it follows the highest number in the folder."""
    if finished is not None:
        return finished.number + 1
    return 1 + max((batch_number(found.name) for found in root.glob("*/batch-*")), default=0)


def after_truncates(root: Path, number: int, folders: Iterable[str]) -> int:
    """A number for a batch that is not below the last truncate of these folders, which another pipeline, whose batches
    have other numbers, may have made."""
    return max([number, *(1 + last for folder in folders if (last := _truncated(root, folder)))])


def note_truncate(root: Path, folder: str, number: int, disk: Disk) -> None:
    """Note the number of a truncate, before it is made."""
    disk.replace(_truncates(root, folder), b"%d" % max(number, _truncated(root, folder)))


def _truncates(root: Path, folder: str) -> Path:
    return root / OWN / f"{folder}.truncated"


def _truncated(root: Path, folder: str) -> int:
    try:
        return int(_truncates(root, folder).read_bytes())
    except FileNotFoundError:
        return 0


def moves(
    staged: Mapping[str, str], number: int, pipeline: str, writer: str, below: str = ""
) -> tuple[tuple[str, str], ...]:
    """The moves of folders, from staging to their final names, that finish a batch.  `staged` has the staged folder of
    each namespace's folder; `below` is put before the final names."""
    name = batch_name(number, pipeline, writer)
    return tuple((old, f"{below}{folder}/{name}") for folder, old in sorted(staged.items()))


def note_folders(path: Path, finished: Finished, disk: Disk) -> None:
    """Add the folders of the last batch to those that the writer has written into; `path` is the writer's file.

    Call it after the folders were moved: `lost` would otherwise report a folder that never existed."""
    known = folders(path)
    if more := {Path(new).parent.name for _, new in finished.moves} - known:
        disk.replace(path.with_suffix(".folders"), msgspec.json.encode(sorted(known | more)))


def folders(path: Path) -> set[str]:
    """The names of the namespaces' folders that the writer has written into."""
    try:
        return msgspec.json.decode(path.with_suffix(".folders").read_bytes(), type=set[str])
    except FileNotFoundError:
        return set()
    except msgspec.DecodeError as error:
        raise Damaged(f"{path}: the list of folders is not what was written there: {error}", where=str(path)) from None
