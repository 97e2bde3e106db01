"""dynoxide: a DynamoDB server on one SQLite file, fetched once from npm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.servers import npm
from tests.servers.kept import PLACE, kept
from tests.servers.process import HOST, Missing, Server, folder, free_ports, listens, running

PACKAGE = "@dynoxide/linux-x64"
VERSION = "1.2.1"


@contextlib.contextmanager
def dynoxide(data: Path | None = None, port: int | None = None) -> Iterator[Server]:
    """DynamoDB on a free port; with `data`, on what an earlier life left there, and with its port where it was."""
    binary, port = _binary(), port or free_ports(1)[0]
    with folder(data) as home:
        command = [str(binary), "serve", "--host", HOST, "--port", str(port), "--db-path", str(home / "dynoxide.db")]
        with running(command, lambda: listens(port), log=home / "server.log") as pid:
            yield Server("dynoxide", f"http://{HOST}:{port}", pid)


def _binary() -> Path:
    """Where the server is; the first call of a checkout installs it."""
    binary = kept(PLACE / "dynoxide" / VERSION, partial(npm.install, f"{PACKAGE}@{VERSION}")) / PACKAGE / "dynoxide"
    if not binary.exists():
        raise Missing(f"`npm install {PACKAGE}` brought no binary for this machine")
    return binary
