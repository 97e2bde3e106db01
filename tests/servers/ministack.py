"""ministack: AWS in one process, with CloudFormation and Lambda functions that streams of DynamoDB start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tests.servers.environment import environment
from tests.servers.process import HOST, Server, answers, folder, free_ports, running


@contextlib.contextmanager
def ministack() -> Iterator[Server]:
    """Everything on one free port."""
    programs = environment("ministack")
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    with folder(None) as home:
        settings = {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": HOST,
            "MINISTACK_HOST": HOST,
            "HOME": str(home),
            "TMPDIR": str(home),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        command = [str(programs / "python"), "-m", "ministack"]
        ready = f"{url}/_ministack/health"
        with running(command, lambda: answers(ready), log=home / "server.log", env=settings, grace=5) as pid:
            yield Server("ministack", url, pid, key="test", secret="test")
