"""Names: namespaces as names of folders, and the folders of batches.

<path>/<namespace>/batch-000000000012-<pipeline>.<writer>/part-….parquet
<path>/<namespace>/batch-000000000012~truncated/              all before it is gone
<path>/_tailrace/<pipeline>.<writer>.json                     what was finished last
<path>/_tailrace/staging/<id>/<namespace>/part-….parquet      what is not finished yet
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import quote, unquote

OWN = "_tailrace"
"""The folder with what is not data; others that read the folder pass over names that begin so."""

TRUNCATED = "~truncated"
_BATCH = re.compile(r"batch-(\d{12,})[-~]")
_LONGEST = 200


def folder_name(namespace: str) -> str:
    """A namespace as the name of a folder; what a folder cannot be called is written as %XX."""
    text = quote(namespace, safe=" !#$&'()+,;=@[]^{}", errors="surrogateescape")
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
