"""Redis: streams in memory behind an append-only file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Missing, Server, folder, free_ports, listens, running


@contextlib.contextmanager
def redis(data: Path | None = None) -> Iterator[Server]:
    """Redis on a free port that syncs its append-only file before it answers a write."""
    command = installed()
    (port,) = free_ports(1)
    with folder(data) as home:
        # Without `save ""` a snapshot forks in the middle of a measurement; rewriting the file would too.
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0"]
        place = ["--bind", HOST, "--port", str(port), "--dir", str(home)]
        with running([command, *place, *durable], lambda: listens(port), log=home / "server.log") as pid:
            yield Server("redis", f"redis://{HOST}:{port}", pid)


def installed() -> str:
    """The path of redis-server, from the system's packages if root may install them."""
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "redis-server"], capture_output=True)
        found = shutil.which("redis-server")
    if found is None:
        raise Missing("no program 'redis-server'; `apt-get install redis-server` brings it")
    return found
