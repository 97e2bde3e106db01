"""Durability: syncs what the library deltalake has written to a disk, because the library itself syncs nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote

from tailrace.adaptors.delta.store import DeltaStore
from tailrace.storage.local.files import REAL, sync_names


def make_durable(store: DeltaStore, name: str, before: int, version: int) -> None:
    """For each commit after the version `before` sync the data files that it added, and then the commit's own file.
    Nothing to do for a bucket."""
    if store.folder is None:
        return
    table = store.folder / name
    for number in range(before + 1, version + 1):
        commit = table / "_delta_log" / f"{number:020d}.json"
        try:
            added = _added(commit)
        except FileNotFoundError:
            continue  # another process has removed it, after a checkpoint
        folders = {path.parent for path in (table / one for one in added) if _sync(path)}
        for folder in folders:
            sync_names(REAL, folder / ".")
        _sync(commit)
        sync_names(REAL, commit)


def _added(commit: Path) -> list[str]:
    actions = map(json.loads, commit.read_text().splitlines())
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _sync(path: Path) -> bool:
    """Sync a file.  False if it is gone: a later commit has replaced it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        REAL.sync(descriptor)
    finally:
        os.close(descriptor)
    return True
