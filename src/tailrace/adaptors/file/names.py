"""Names: the folders of namespaces, and the folders of batches.

<path>/<namespace>/batch-000000000012-<pipeline>.<writer>/part-….parquet
<path>/<namespace>/batch-000000000012~truncated/              a truncate: earlier batches no longer count
<path>/_tailrace/<pipeline>.<writer>.json                     the writer's state, with its last finished batch
<path>/_tailrace/staging/<id>/<namespace>/part-….parquet      the staged part files of a share
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote

OWN = "_tailrace"
"""The folder for everything but data.  Programs that read the path skip names that begin with an underscore."""

STAGING = f"{OWN}/staging"
CHANGES = f"{OWN}/changes"
"""The folder with the batches that are still to be merged into a state."""

TRUNCATED = "~truncated"
_BATCH = re.compile(r"batch-(\d{12,})[-~]")
_LONGEST = 200
"""Characters of a folder's name before its hash; file systems allow 255 bytes."""


class Folders:
    """The folders of namespaces below a root.  Different namespaces have different folders on every file system.

    On a file system that takes `Orders` for `orders`, capital letters are written as %XX.  A folder that an earlier
    version made under its plain name stays the folder of its namespace."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, namespace: str) -> str:
        """The name of a namespace's folder."""
        name = folder_name(namespace)
        if self._tells_case or self._there.get(name.lower(), name.lower()) == name:
            return name
        plain = folder_name(namespace, capitals=False)
        return plain if plain != name else f"%{ord(name[0]):02X}{name[1:]}"

    @cached_property
    def _tells_case(self) -> bool:
        return not ((self._root / OWN).exists() and (self._root / OWN.upper()).exists())

    @cached_property
    def _there(self) -> dict[str, str]:
        """The names of the existing folders, by their names in small letters."""
        return {entry.name.lower(): entry.name for entry in self._root.iterdir()}


def folder_name(namespace: str, capitals: bool = True) -> str:
    """The name of a namespace's folder; characters that a folder's name cannot have are written as %XX."""
    text = quote(namespace, safe=" !#$&'()+,;=@[]^{}", errors="surrogateescape")
    if not capitals:
        text = re.sub(r"%[0-9A-F]{2}|[A-Z]", lambda m: m[0] if len(m[0]) == 3 else f"%{ord(m[0]):02X}", text)
    if text[:1] in ("_", ".", ""):
        text = f"%{ord(text[:1] or chr(0)):02X}{text[1:]}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}~{hashlib.sha256(namespace.encode(errors='surrogateescape')).hexdigest()[:16]}"
    return text


def namespace_name(folder: str) -> str:
    """The namespace of a folder: the reverse of `folder_name`."""
    return unquote(folder, errors="surrogateescape")


def batch_name(number: int, pipeline: str, writer: str) -> str:
    """The name of a batch's folder.  Sorted by name, the folders are in the order of the batches."""
    return f"batch-{number:012d}-{pipeline}.{writer}"


def batch_number(name: str) -> int:
    """The number in the name of a batch's folder; 0 for any other name."""
    match = _BATCH.match(name)
    return int(match[1]) if match else 0


def last_number(folder: Path) -> int:
    """The highest number of a batch in a namespace's folder."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return max(map(batch_number, names), default=0)
