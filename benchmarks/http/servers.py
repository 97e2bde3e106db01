"""The servers: `tailrace serve` as a process of its own, and a Starlette handler that does nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

BARE = """
import socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def nothing(request):
    await request.body()
    return Response(b'{"records":1}', 201, media_type="application/json")

listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so asyncio sets TCP_NODELAY
listening.bind(("127.0.0.1", 0))
listening.listen(2048)
print(listening.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/{path:path}", nothing, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
"""


@dataclass(frozen=True)
class Served:
    """Where a server listens, and what admits to it."""

    port: int
    token: str = ""
    pid: int = 0


@contextlib.contextmanager
def served_home(home: Path, *options: str) -> Iterator[Served]:
    """`tailrace serve` of a home."""
    program = "from tailrace.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--home", str(home), "--port", "0", "--json", *options]
    with _running(command) as (child, line):
        started = json.loads(line)
        port = urlsplit(started["address"]).port
        assert port is not None
        yield Served(port, f"Bearer {started['token']}", child.pid)


@contextlib.contextmanager
def served_nothing() -> Iterator[Served]:
    """A handler that reads the body and answers: no server of Starlette's can be quicker."""
    with _running([sys.executable, "-c", BARE]) as (child, line):
        yield Served(int(line), "", child.pid)


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process, and the first line that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline()
        finally:
            child.terminate()
