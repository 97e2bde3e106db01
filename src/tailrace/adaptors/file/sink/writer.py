"""The writer: writes batches of messages into a folder; readers see each batch whole or not at all, and once."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import TRUNCATE, Command, Guarantee, Staged, Who, Writer
from tailrace.adaptors.file.names import CHANGES, OWN, STAGING, TRUNCATED, Folders, last_number
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink import finished as finishing
from tailrace.adaptors.file.sink.disk import REAL, Disk, check_writable, explained
from tailrace.adaptors.file.sink.finished import Finished
from tailrace.adaptors.file.sink.parts import Parts
from tailrace.adaptors.file.sink.state import StateMerge, is_lost
from tailrace.errors import BadSetting, NotReady

_log = logging.getLogger("tailrace")
BATCH_SECONDS, MERGE_SECONDS = 10.0, 60.0
"""Seconds between two batches, and between two merges of a state, unless the settings say otherwise."""
FORGOTTEN_SECONDS = 24 * 3600.0
"""Seconds after which staged files of a batch that was never finished are removed."""


class FileWriter(Writer):
    """Writes JSON lines, CSV or Parquet.  See names.py for the layout, finished.py for why it is exactly once."""

    guarantee: ClassVar[Guarantee] = "exactly once"
    commands: ClassVar[frozenset[str]] = frozenset({TRUNCATE})

    def __init__(self, settings: FileSink, disk: Disk = REAL) -> None:
        self._settings, self._disk = settings, disk
        self._root = Path(settings.path).absolute()
        self._folders = Folders(self._root)
        self._merges = settings.keep == "state"
        every = (MERGE_SECONDS if self._merges else BATCH_SECONDS) if settings.every is None else settings.every
        self.every, self._merge_every = (0.0, every) if self._merges else (every, 0.0)
        self._due: set[str] = set()
        """Folders of the namespaces whose state is still to be merged."""
        self._who: Who | None = None
        self._merged = 0.0

    def check(self) -> None:
        """Raise if the folder cannot be written into, or not be made.  Leaves nothing behind."""
        if "://" in self._settings.path:
            raise NotReady(
                f"{self._settings.path.split('?')[0]!r} is no folder of this machine; mount it, and say where, or "
                "have the adaptor delta write it"
            )
        if self._merges and (self._settings.format != "parquet" or self._settings.plain):
            raise BadSetting(
                "keep = 'state' is one Parquet file for each namespace; leave format and plain as they are"
            )
        if self._root.exists() and not self._root.is_dir():
            raise NotReady(f"{self._root} is a file; the file sink writes into a folder")
        with explained(self._root):
            check_writable(self._root)
            self._clean()

    def leave_mark(self, who: str, mark: str) -> None:
        """Write the mark into a file in the folder."""
        with explained(self._root):
            self._disk.make_folder(self._root / OWN)
            self._disk.replace(self._shared(who), mark.encode())

    def sees_mark(self, who: str, mark: str) -> bool:
        """Whether the folder, as this machine sees it, has the mark."""
        path = self._shared(who)
        with explained(self._root):
            return path.is_file() and path.read_bytes() == mark.encode()

    def _shared(self, who: str) -> Path:
        return self._root / OWN / f"{who}.shared"

    def _clean(self) -> None:
        """Remove folders that tasks staged long ago, except those of finished batches that were not moved yet."""
        kept = [finishing.read(path) for path in (self._root / OWN).glob("*.json")]
        decided = {Path(old).parent.name for one in kept if one is not None for old, _ in one.moves}
        for entry in (self._root / STAGING).glob("*"):
            with suppress(FileNotFoundError):  # another writer into the folder has removed its own
                if entry.name not in decided and time.time() - entry.stat().st_mtime > FORGOTTEN_SECONDS:
                    self._disk.remove(entry)

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """The epoch, and the offsets of the last finished batch; None before the first.  Moves that batch's folders if
        a crash has kept the writer from it."""
        with explained(self._root):
            kept = finishing.read(finishing.kept_in(self._root, pipeline, writer))
            if kept is None:
                return None
            finishing.roll_forward(self._root, kept, self._disk)
            finishing.note_folders(finishing.kept_in(self._root, pipeline, writer), kept, self._disk)
        return kept.fence.restored()

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """As `restore`, and from then on no earlier run can finish a batch."""
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                kept = self.restore(who.pipeline, who.writer)
                first = finishing.next_number(self._batches(who), None)
                before = finishing.read(path) or Finished(number=first - 1)
                claimed = before.fence.claim(who)
                if before.offsets and before.keep != self._settings.keep:
                    raise NotReady(
                        f"the writer {who.writer!r} has kept {before.keep} in {self._root} so far: a "
                        f"{self._settings.keep} would lack that; give it another name, and it is filled from the start"
                    )
                if claimed is not None:
                    now = Finished(who.epoch, before.offsets, before.number, claimed=True, keep=self._settings.keep)
                    self._disk.replace(path, msgspec.json.encode(now))
                if self._merges and self._batches(who).is_dir():
                    self._due, self._who = {entry.name for entry in self._batches(who).iterdir()}, who
        return kept

    def lost(self, who: Who) -> list[str]:
        """The folders that this writer has written into and that are gone, or have no batch or state any more."""
        with explained(self._root):
            written = finishing.folders(finishing.kept_in(self._root, who.pipeline, who.writer))
            gone = [name for name in sorted(written) if self._is_lost(self._batches(who) / name)]
        return [f"the folder {self._root / name}" for name in gone]

    def _batches(self, who: Who) -> Path:
        """The folder that has a folder with batches for each namespace."""
        return self._root / CHANGES / f"{who.pipeline}.{who.writer}" if self._merges else self._root

    def _is_lost(self, folder: Path) -> bool:
        return is_lost(self._root, folder) if self._merges else not _has_batches(folder)

    def forget(self, who: Who) -> None:
        """Forget which folders this writer has written into."""
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            for folder in finishing.folders(path) if self._merges else ():
                if self._is_lost(self._batches(who) / folder):
                    self._disk.remove(self._batches(who) / folder)
            path.with_suffix(".folders").unlink(missing_ok=True)

    def idle(self) -> None:
        """Merge the pending batches into the states, when that is due: the last changes before a quiet time would
        otherwise wait for the next one."""
        if self._due and self._who is not None and self._is_time_to_merge():
            self._merge_pending(self._who)

    def _is_time_to_merge(self) -> bool:
        return not self._merged or time.monotonic() - self._merged >= self._merge_every

    def _merge_pending(self, who: Who) -> None:
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root), self._disk.locked(path.with_suffix(".lock")):
            if (kept := finishing.read(path)) is not None:
                kept.fence.admit(who)
            self._merge(who)

    def _merge(self, who: Who) -> None:
        """Merge the pending batches into the states.  The caller holds the writer's lock."""
        for folder in sorted(self._due):
            StateMerge(self._root, self._batches(who) / folder, self._settings.compression, self._disk).run()
        self._due, self._merged = set(), time.monotonic()

    def close(self) -> None:
        """Merge the pending batches into the states.  If that fails, it logs a warning and the next run merges them."""
        if not self._due or self._who is None:
            return
        try:
            self._merge_pending(self._who)
        except Exception as error:
            _log.warning("the states in %s are not merged yet, the next run does it: %s", self._root, error)

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Write a share's part files into a staging folder, and make them durable."""
        id = secrets.token_hex(8)
        folder = f"{STAGING}/{id}"
        parts = Parts(self._root / folder, id, self._folders, self._settings, self._disk)
        with explained(self._root):
            self._disk.make_folder(self._root / STAGING)  # first: Folders looks for it to see capital letters
            try:
                parts.add(rows)
                counts = parts.close()
            except BaseException:
                self._disk.remove(self._root / folder)
                raise
        return Staged(sum(counts.values()), folder, counts, parts.files)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Finish the batch: replace the writer's file by one with the offsets and the moves, and then move the folders.
        With keep = state also merge, when that is due."""
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                self._finish(path, staged, who, dict(offsets))
                if self._merges:
                    self._due |= {self._folders.of(name) for share in staged for name in share.namespaces}
                    self._who = who
                    if self._is_time_to_merge():
                        self._merge(who)

    def _finish(self, path: Path, staged: Sequence[Staged], who: Who, offsets: dict[str, Any]) -> None:
        before = finishing.read(path)
        if before is not None:
            finishing.roll_forward(self._root, before, self._disk)
            finishing.note_folders(path, before, self._disk)
            if before.fence.is_repeat(who, offsets):
                self.discard(staged)
                return
        self._check_staged(staged)
        gathered = self._gathered(staged)
        number = finishing.next_number(self._batches(who), before)
        number = finishing.after_truncates(self._root, number, () if self._merges else gathered)
        below = f"{self._batches(who).relative_to(self._root)}/" if self._merges else ""
        moves = finishing.moves(gathered, number, who.pipeline, who.writer, below)
        now = Finished(who.epoch, offsets, number, moves, keep=self._settings.keep)
        self._disk.replace(path, msgspec.json.encode(now))
        try:
            finishing.roll_forward(self._root, now, self._disk)
            finishing.note_folders(path, now, self._disk)
        except OSError as error:  # the batch is finished all the same
            _log.warning("a batch in %s is shown later, with the next or after a restart: %s", self._root, error)
            return
        self.discard(staged)

    def _check_staged(self, staged: Sequence[Staged]) -> None:
        """Raise `NotReady` unless every file that the tasks staged exists with its size."""
        for share in staged:
            for name, size in share.files.items():
                path = self._root / share.detail / name
                found = path.stat().st_size if path.is_file() else None
                if found != size:
                    raise NotReady(
                        f"a task staged {path} with {size} bytes, and here "
                        f"{'is no such file' if found is None else f'it has {found}'}; nothing of the batch counts as "
                        f"delivered: every machine that runs tasks must have {self._root} mounted, and nothing may "
                        f"remove files in {OWN}"
                    )

    def _gathered(self, staged: Sequence[Staged]) -> dict[str, str]:
        """Put the part files of all shares of a namespace into one staged folder.  Returns the staged folder of each
        namespace's folder."""
        out: dict[str, str] = {}
        for share in staged:
            for folder in sorted({self._folders.of(namespace) for namespace in share.namespaces}):
                mine = f"{share.detail}/{folder}"
                if folder not in out and (self._root / mine).is_dir():
                    out[folder] = mine
                elif (self._root / mine).is_dir():
                    self._join(self._root / mine, self._root / out[folder])
        return out

    def _join(self, share: Path, into: Path) -> None:
        for part in sorted(share.iterdir()):
            self._disk.move(part, into / part.name)

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove the staging folders of shares."""
        for share in staged:
            if share.detail:
                self._disk.remove(self._root / share.detail)

    def command(self, namespace: str, command: Command, who: Who) -> None:
        """Mark a truncate by an empty folder, whose name sorts after all batches so far and before those to come."""
        folder = self._batches(who) / self._folders.of(namespace)
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                if (kept := finishing.read(path)) is not None:
                    kept.fence.admit(who)
                    finishing.roll_forward(self._root, kept, self._disk)  # moved later it would come after the mark
                    finishing.note_folders(path, kept, self._disk)
                last = kept.number if self._merges and kept is not None else last_number(folder)
                if not self._merges:
                    finishing.note_truncate(self._root, folder.name, last, self._disk)
                self._disk.make_folder(folder / f"batch-{last:012d}{TRUNCATED}")
                if self._merges:
                    self._due, self._who = self._due | {folder.name}, who


def _has_batches(folder: Path) -> bool:
    return folder.is_dir() and any(entry.name.startswith("batch-") for entry in folder.iterdir())
