"""What a writer has finished in a folder: one small file, replaced as a whole, that decides everything.

    _tailrace/<pipeline>.<writer>.json    epoch, offsets, number, moves, claimed

The parts of a batch are staged first.  Replacing this file, with the new offsets and with `moves`, the folders that are
to get their final names, is the moment the batch is finished.  Then they are moved, each at once and whole.  Whoever
comes after a crash moves what was not moved yet.  So a batch is there once, and its offsets are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tailrace.adaptors.file.disk import Disk
from tailrace.adaptors.file.names import OWN, batch_name, batch_number
from tailrace.errors import Damaged


class Finished(msgspec.Struct, frozen=True):
    """As it is kept.  `moves` are (from, to), relative to the writer's folder; `claimed`: the epoch has begun, and the
    offsets are still those of the one before."""

    epoch: int = 0
    offsets: dict[str, Any] = {}
    number: int = 0
    moves: tuple[tuple[str, str], ...] = ()
    claimed: bool = False


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
    """The number of the next batch; where nothing is kept, after any that somebody has left."""
    if finished is not None:
        return finished.number + 1
    return 1 + max((batch_number(found.name) for found in root.glob("*/batch-*")), default=0)


def moves(staged: Mapping[str, str], number: int, pipeline: str, writer: str) -> tuple[tuple[str, str], ...]:
    """Where staged folders (namespace's folder → where it is) go."""
    name = batch_name(number, pipeline, writer)
    return tuple((old, f"{folder}/{name}") for folder, old in sorted(staged.items()))
