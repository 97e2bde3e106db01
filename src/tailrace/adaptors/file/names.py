"""Names: namespaces as names of folders, and the folders of batches.

<path>/<namespace>/batch-000000000012-<pipeline>.<writer>/part-….parquet
<path>/<namespace>/batch-000000000012~truncated/              all before it is gone
<path>/_tailrace/<pipeline>.<writer>.json                     what was finished last
<path>/_tailrace/staging/<id>/<namespace>/part-….parquet      what is not finished yet
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote

OWN = "_tailrace"
"""The folder with what is not data; others that read the folder pass over names that begin so."""

STAGING = f"{OWN}/staging"
CHANGES = f"{OWN}/changes"
"""Where batches are that wait to be merged into a state."""

TRUNCATED = "~truncated"
_BATCH = re.compile(r"batch-(\d{12,})[-~]")
_LONGEST = 200


class Folders:
    """The folders of namespaces below a root: no two namespaces have the same one, whatever the file system.

    Where it does not tell `Orders` from `orders`, capital letters are written as %XX.  A folder that an earlier version
    made under its plain name stays the folder of its namespace."""

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
        """The folders that are there, by their names in small letters."""
        return {entry.name.lower(): entry.name for entry in self._root.iterdir()}


def folder_name(namespace: str, capitals: bool = True) -> str:
    """A namespace as the name of a folder; what a folder cannot be called is written as %XX."""
    text = quote(namespace, safe=" !#$&'()+,;=@[]^{}", errors="surrogateescape")
    if not capitals:
        text = re.sub(r"%[0-9A-F]{2}|[A-Z]", lambda m: m[0] if len(m[0]) == 3 else f"%{ord(m[0]):02X}", text)
    if text[:1] in ("_", ".", ""):
        text = f"%{ord(text[:1] or chr(0)):02X}{text[1:]}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}~{hashlib.sha256(namespace.encode(errors='surrogateescape')).hexdigest()[:16]}"
    return text


def namespace_name(folder: str) -> str:
    """The namespace that a folder is called after."""
    return unquote(folder, errors="surrogateescape")


def batch_name(number: int, pipeline: str, writer: str) -> str:
    """The folder of one batch; they are in order by name."""
    return f"batch-{number:012d}-{pipeline}.{writer}"


def batch_number(name: str) -> int:
    """The number of a batch's folder; 0 for anything else."""
    match = _BATCH.match(name)
    return int(match[1]) if match else 0


def last_number(folder: Path) -> int:
    """The highest number of a batch in a namespace's folder."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return max(map(batch_number, names), default=0)
