"""Durable: what the library deltalake has committed on a disk, made to survive a cut of the power; it syncs nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote

from tailrace.adaptors.delta.store import DeltaStore
from tailrace.storage.local.files import REAL, sync_names


def make_durable(store: DeltaStore, name: str, before: int, version: int) -> None:
    """Sync the files that the commits after a version added, and then the commits."""
    if store.folder is None:
        return
    table = store.folder / name
    for number in range(before + 1, version + 1):
        commit = table / "_delta_log" / f"{number:020d}.json"
        try:
            added = _added(commit)
        except FileNotFoundError:
            continue  # others have put it into a checkpoint, and removed it
        folders = {path.parent for path in (table / one for one in added) if _sync(path)}
        for folder in folders:
            sync_names(REAL, folder / ".")
        _sync(commit)
        sync_names(REAL, commit)


def _added(commit: Path) -> list[str]:
    actions = map(json.loads, commit.read_text().splitlines())
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _sync(path: Path) -> bool:
    """Sync a file; False if it is gone, since a later commit needs it no more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        REAL.sync(descriptor)
    finally:
        os.close(descriptor)
    return True
