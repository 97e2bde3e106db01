"""Writing: batches of messages into a folder, each seen whole or not at all, and once."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Guarantee, Staged, Who, Writer
from tailrace.adaptors.file import finished as finishing
from tailrace.adaptors.file.disk import REAL, Disk, explained
from tailrace.adaptors.file.finished import Finished
from tailrace.adaptors.file.names import OWN, TRUNCATED, folder_name, last_number
from tailrace.adaptors.file.parts import Parts
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.turn import is_repeat
from tailrace.errors import NotReady

_log = logging.getLogger("tailrace")
STAGING = f"{OWN}/staging"
FORGOTTEN = 24 * 3600.0
"""Seconds after which staged files that nobody has finished are removed."""


class FileWriter(Writer):
    """Writes JSON lines, CSV or Parquet.  See names.py for the layout, finished.py for why it is exactly once."""

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __init__(self, settings: FileSink, disk: Disk = REAL) -> None:
        self._settings, self._disk = settings, disk
        self._root = Path(settings.path).absolute()

    def check(self) -> None:
        """Make the folder, and see that one can write there."""
        if "://" in self._settings.path:
            raise NotReady(
                f"{self._settings.path.split('?')[0]!r} is no folder of this machine; mount it, and say where"
            )
        if self._root.exists() and not self._root.is_dir():
            raise NotReady(f"{self._root} is a file; the file sink writes into a folder")
        with explained(self._root):
            self._disk.make_folder(self._root / STAGING)
            probe = self._root / STAGING / f"probe-{secrets.token_hex(8)}"
            probe.touch()
            probe.unlink()
            self._clean()

    def _clean(self) -> None:
        """Remove what tasks staged long ago, except what was decided for and not moved yet."""
        kept = [finishing.read(path) for path in (self._root / OWN).glob("*.json")]
        decided = {Path(old).parent.name for one in kept if one is not None for old, _ in one.moves}
        for entry in (self._root / STAGING).iterdir():
            if entry.name not in decided and time.time() - entry.stat().st_mtime > FORGOTTEN:
                self._disk.remove(entry)

    def restore(self, pipeline: str, writer: str) -> Mapping[str, Any] | None:
        """What was finished last; a batch that was cut off in the middle of being shown is shown first."""
        with explained(self._root):
            kept = finishing.read(finishing.kept_in(self._root, pipeline, writer))
            if kept is None:
                return None
            finishing.roll_forward(self._root, kept, self._disk)
        return {"epoch": kept.epoch, "offsets": kept.offsets}

    def claim(self, who: Who) -> Mapping[str, Any] | None:
        """The same, and no earlier run can finish anything from now on."""
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                kept = self.restore(who.pipeline, who.writer)
                before = finishing.read(path) or Finished(number=finishing.next_number(self._root, None) - 1)
                is_repeat((before.epoch, {}), who, {})
                now = Finished(who.epoch, before.offsets, before.number, claimed=True)
                self._disk.replace(path, msgspec.json.encode(now))
        return kept

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Write a share's part files where nobody looks yet."""
        id = secrets.token_hex(8)
        folder = f"{STAGING}/{id}"
        parts = Parts(self._root / folder, id, self._settings, self._disk)
        with explained(self._root):
            try:
                parts.add(rows)
                counts = parts.close()
            except BaseException:
                self._disk.remove(self._root / folder)
                raise
        return Staged(sum(counts.values()), folder, counts)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Decide for the batch and its offsets by one replaced file, then show it."""
        path = finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                self._finish(path, staged, who, dict(offsets))

    def _finish(self, path: Path, staged: Sequence[Staged], who: Who, offsets: dict[str, Any]) -> None:
        before = finishing.read(path)
        if before is not None:
            finishing.roll_forward(self._root, before, self._disk)
            if is_repeat((before.epoch, {} if before.claimed else before.offsets), who, offsets):
                self.discard(staged)
                return
        gathered = self._gathered(staged)
        number = finishing.next_number(self._root, before)
        moves = finishing.moves(gathered, number, who.pipeline, who.writer)
        now = Finished(who.epoch, offsets, number, moves)
        self._disk.replace(path, msgspec.json.encode(now))
        try:
            finishing.roll_forward(self._root, now, self._disk)
        except OSError as error:  # decided all the same
            _log.warning("a batch in %s is shown later, with the next or after a restart: %s", self._root, error)
            return
        self.discard(staged)

    def _gathered(self, staged: Sequence[Staged]) -> dict[str, str]:
        """All shares' parts of a namespace in one staged folder: by the namespace's folder, where that is."""
        out: dict[str, str] = {}
        for share in staged:
            for folder in sorted({folder_name(namespace) for namespace in share.namespaces}):
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
        """Remove what is left of staged shares."""
        for share in staged:
            if share.detail:
                self._disk.remove(self._root / share.detail)

    def command(self, namespace: str, name: str, who: Who) -> None:
        """A truncate is a mark: an empty folder, by its name after all batches so far and before those to come."""
        folder, path = self._root / folder_name(namespace), finishing.kept_in(self._root, who.pipeline, who.writer)
        with explained(self._root):
            self._disk.make_folder(path.parent)
            with self._disk.locked(path.with_suffix(".lock")):
                if (kept := finishing.read(path)) is not None:
                    is_repeat((kept.epoch, {}), who, {})
                self._disk.make_folder(folder / f"batch-{last_number(folder):012d}{TRUNCATED}")
