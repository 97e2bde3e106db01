"""Listing: finds the files of a source, with the format and the namespace of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.adaptors.file.names import namespace_name
from tailrace.adaptors.file.settings import FileSource, Format
from tailrace.errors import NotReady, Unavailable

FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
}  # fmt: skip

ATTEMPTS = 20
"""How often a listing is tried while folders go."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file: its path from the root, its namespace and its format."""

    name: str
    namespace: str
    format: Format


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """A root folder, and a pattern for a source's files below it."""

    root: Path
    pattern: str
    settings: FileSource

    @classmethod
    def of(cls, settings: FileSource) -> FilesPlace:
        """The place for the setting `path`, which is a file, a folder or a pattern."""
        path = Path(settings.path).absolute()
        if any(mark in settings.path for mark in "*?["):
            fixed = Path(
                *[p for n, p in enumerate(path.parts) if not any(m in "".join(path.parts[: n + 1]) for m in "*?[")]
            )
            return cls(fixed, str(path.relative_to(fixed)), settings)
        if path.is_dir():
            return cls(path, "**/*", settings)
        return cls(path.parent, path.name.replace("[", "[[]"), settings)

    def check(self) -> None:
        """Raise `NotReady` if the folder or a named file is missing, or a file cannot be read."""
        if "://" in self.settings.path:
            raise NotReady(
                f"{self.settings.path.split('?')[0]!r} is no folder of this machine; mount it, and say where"
            )
        if not self.root.is_dir():
            raise NotReady(f"there is no folder {self.root}")
        if "**" not in self.pattern and not self._matching():
            raise NotReady(f"there is no file {self.root / self.pattern}")
        for found in self.files():
            path = self.root / found.name
            if not os.access(path, os.R_OK) and path.exists():
                raise NotReady(f"{path} cannot be read; give this user the right to it")

    def files(self) -> Iterator[FoundFile]:
        """The files that exist now, in order by name.  Skips names that begin with '.' or '_'."""
        for path in self._matching():
            relative = path.relative_to(self.root)
            if not any(part[0] in "._" for part in relative.parts) and path.is_file():
                found = self.found(str(relative))
                if found is not None:
                    yield found

    def _matching(self) -> list[Path]:
        """The paths that match the pattern, in order.

        Lists again if a folder goes while it is listed, as the temporary folders of a job that writes here do.  Raises
        `Unavailable` if the root is not there, also if it has gone meanwhile: nothing of it may count as removed."""
        for _ in range(ATTEMPTS):
            with suppress(FileNotFoundError):
                found = sorted(self.root.glob(self.pattern))
                if not self.root.is_dir():
                    raise Unavailable(f"the folder {self.root} is not there")
                return found
        raise Unavailable(f"folders below {self.root} come and go faster than they can be listed")

    def found(self, name: str) -> FoundFile | None:
        """The file with this path from the root; None if neither the settings nor its name give a format."""
        path = Path(name)
        format = self.settings.format or FORMATS.get(path.suffix.lower())
        if format is None and self.pattern == path.name:
            raise NotReady(
                f"the name {path.name!r} does not say what is in the file; say format = jsonl, csv or parquet"
            )
        if format is None:
            return None
        return FoundFile(name, self.settings.as_namespace or _namespace(path), format)

    def path(self, name: str) -> Path:
        """The absolute path of a file."""
        return self.root / name


def _namespace(path: Path) -> str:
    return path.stem if len(path.parts) == 1 else namespace_name(path.parts[0])
