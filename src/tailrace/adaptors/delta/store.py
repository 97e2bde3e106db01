"""The store: objects below a root on disk or in a bucket, with the options that the library deltalake takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tailrace.adaptors.delta.errors import explained
from tailrace.errors import NotInstalled
from tailrace.storage.local.files import REAL, make_folders, sync_names

READ_BYTES = 8 * 1024 * 1024
WRITE_BYTES = 8 * 1024 * 1024


class DeltaStore:
    """Objects below a root.  On a disk this class writes and syncs the files itself: the library does not sync."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self.root, self.options = root.rstrip("/"), dict(options)
        self.folder = Path(self.root) if "://" not in self.root else None
        self._handler: Any = None

    @property
    def shown(self) -> str:
        """The root for messages, without a query, which may have secrets."""
        return self.root.split("?")[0]

    def uri(self, name: str) -> str:
        """The path or URL of a name below the root."""
        return f"{self.root}/{name}"

    @property
    def _remote(self) -> Any:
        if self._handler is None:
            try:
                # Not deltalake.fs: it hands what is written to Rust as pyarrow's buffers, and Rust wants bytes.
                from deltalake._internal import DeltaFileSystemHandler
            except ImportError as error:
                raise missing(error) from None
            self._handler = DeltaFileSystemHandler(self.root, self.options)
        return self._handler

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Write an object; on a disk it is synced when this returns."""
        with explained(self.shown):
            if self.folder is not None:
                _write(self.folder / name, parts)
                return
            stream = self._remote.open_output_stream(name, None)
            for part in parts:
                for at in range(0, len(part), WRITE_BYTES):
                    stream.write(part[at : at + WRITE_BYTES])
            stream.close()

    def read(self, name: str, start: int, length: int) -> bytes | None:
        """Read `length` bytes of an object from `start` on; None if the object is gone."""
        with explained(self.shown):
            try:
                if self.folder is not None:
                    with (self.folder / name).open("rb") as file:
                        file.seek(start)
                        return file.read(length)
                stream = self._remote.open_input_file(name)
                stream.seek(start)
                return b"".join(bytes(stream.read(min(READ_BYTES, length - at))) for at in range(0, length, READ_BYTES))
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with explained(self.shown):
            try:
                if self.folder is not None:
                    (self.folder / name).unlink(missing_ok=True)
                else:
                    self._remote.delete_file(name)
            except FileNotFoundError:
                pass

    def names(self, folder: str) -> list[str]:
        """The names of the objects and folders directly in a folder, without the folder."""
        with explained(self.shown):
            if self.folder is not None:
                there = self.folder / folder
                return sorted(os.listdir(there)) if there.is_dir() else []
            found = [info.path.strip("/") for info in self._remote.get_file_info_selector(folder, True, False)]
            # Some servers also list the folder itself.
            return sorted(path.rpartition("/")[2] for path in found if path != folder)


def _write(path: Path, parts: Iterable[bytes]) -> None:
    make_folders(REAL, path.parent)
    descriptor = REAL.create(path)
    try:
        for part in parts:
            REAL.write(descriptor, [part])
        REAL.sync(descriptor)
    finally:
        REAL.close(descriptor)
    sync_names(REAL, path)


def missing(error: ImportError) -> NotInstalled:
    """The error for a missing deltalake library."""
    return NotInstalled(f"the delta adaptor needs the library deltalake: pip install 'tailrace[delta]' ({error})")
