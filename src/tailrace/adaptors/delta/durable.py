"""Durability: syncs what the library deltalake has written to a disk, because the library itself syncs nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tailrace.adaptors.delta.errors import explained
from tailrace.adaptors.delta.store import DeltaStore
from tailrace.storage.local.files import REAL, sync_names

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

_FILES = ("add", "cdc")
"""The actions of a commit that name a file which the commit has added."""
_CLEANS = "delta.enableExpiredLogCleanup"


def hooks(store: DeltaStore) -> PostCommitHookProperties | None:
    """What the library does after a commit.  On a disk it may not remove old commits: the checkpoint that replaces them
    is not synced yet.  `make_durable` removes them."""
    from deltalake import PostCommitHookProperties

    return None if store.folder is None else PostCommitHookProperties(cleanup_expired_logs=False)


def make_durable(store: DeltaStore, name: str, before: int, table: DeltaTable) -> None:
    """Sync the commits after the version `before`: first the files that they added, then their own files, and then
    their checkpoints.  Then remove the commits that have expired.  Nothing to do for a bucket."""
    if store.folder is None:
        return
    folder = store.folder / name
    log = folder / "_delta_log"
    latest_first = (log / f"{number:020d}.json" for number in range(table.version(), before, -1))
    commits = list(takewhile(Path.exists, latest_first))[::-1]  # only the oldest are ever removed
    _sync_all(folder / one for commit in commits for one in _added(commit))
    _sync_all(commits)
    checkpoints = [path for one in commits if (path := one.with_suffix(".checkpoint.parquet")).exists()]
    if checkpoints:
        _sync_all([*checkpoints, log / "_last_checkpoint"])
        if table.metadata().configuration.get(_CLEANS, "true").lower() == "true":
            with explained(f"{store.shown}/{name}"):
                table.cleanup_metadata()


def _added(commit: Path) -> list[str]:
    try:
        actions = list(map(json.loads, commit.read_text().splitlines()))
    except FileNotFoundError:
        return []  # another process has removed it, after a checkpoint
    return [unquote(action[kind]["path"]) for action in actions for kind in _FILES if kind in action]


def _sync_all(paths: Iterable[Path]) -> None:
    """Sync files, and then their names.  Those that are gone are passed: a later commit has replaced them."""
    for path in {path.parent: path for path in paths if _sync(path)}.values():
        sync_names(REAL, path)


def _sync(path: Path) -> bool:
    """Sync a file.  False if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        REAL.sync(descriptor)
    finally:
        os.close(descriptor)
    return True
