"""Mounts: refuses a home on a network file system, unless its user says that only one host uses it.

SQLite's processes share memory and locks.  Two hosts share neither, however well their file system does: both would
write, each believing that it is alone.  And many of these file systems answer an fsync before the bytes are durable.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import HomeError

ALLOWED = "TAILRACE_NETWORK_HOME"
"""A user sets it to `allow` if only one host uses the home and its file system keeps what was synced."""

NETWORK = {
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs",
    "ocfs2", "gfs2", "davfs", "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.ceph",
    "fuse.gcsfuse", "fuse.rclone", "fuse.goofys", "fuse.juicefs", "fuse.davfs2", "fuse.blobfuse", "fuse.blobfuse2",
    "fuse.mount-s3",
}  # fmt: skip

MOUNTS = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    """Where a file system is mounted, and its kind."""

    point: Path
    kind: str


def check_local(folder: Path) -> None:
    """Raise `HomeError` if a folder, present or not, is on a network file system that the user has not allowed."""
    mount = mount_of(folder)
    if mount is not None and mount.kind in NETWORK and os.environ.get(ALLOWED) != "allow":
        raise HomeError(
            f"{folder} is on a network file system ({mount.kind} at {mount.point}), where hosts do not see each "
            "other's locks and records can be lost; use a local disk, or s3://bucket/prefix?table=NAME for several "
            f"hosts; if one host alone uses it and the server keeps what was synced: {ALLOWED}=allow"
        )


def mount_of(folder: Path) -> Mount | None:
    """The file system that a folder is on; None where the system does not tell."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    path, best = folder.absolute().resolve(), None
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(_unescaped(left.split(" ")[4]))
        # Of two file systems mounted at the same place, the later one is on top.
        if path.is_relative_to(point) and (best is None or point.is_relative_to(best.point)):
            best = Mount(point, right.split(" ")[0])
    return best


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
