"""moto: AWS in one Python process and in memory; for DynamoDB a second opinion beside dynoxide."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Server, answers, folder, free_ports, program, running


@contextlib.contextmanager
def moto() -> Iterator[Server]:
    """DynamoDB and S3 on one free port."""
    program("moto_server", "'moto[server,dynamodb,s3]'")
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    serve = [sys.executable, "-P", str(Path(__file__).with_name("serialmoto.py")), HOST, str(port)]
    # It waits for idle connections before it goes, and has nothing to lose: no grace.
    with (
        folder(None) as home,
        running(serve, lambda: answers(f"{url}/moto-api/"), log=home / "server.log", grace=0.2) as pid,
    ):
        yield Server("moto", url, pid)
