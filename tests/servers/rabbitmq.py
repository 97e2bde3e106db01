"""RabbitMQ: a broker with durable queues."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Missing, Server, folder, free_ports, listens, running

DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextlib.contextmanager
def rabbitmq(data: Path | None = None) -> Iterator[Server]:
    """RabbitMQ on a free port, with a port mapper (epmd) of its own, which would else stay for ever."""
    command, epmd = installed()
    port, nodes, mapper = free_ports(3)
    with folder(data) as home:
        env = {
            **os.environ,
            "HOME": str(home),  # where Erlang keeps its cookie
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(nodes),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{{HOST.replace('.', ',')}}}",
        }
        with (
            running([epmd, "-address", HOST, "-port", str(mapper)], lambda: listens(mapper), log=home / "epmd.log"),
            running([command], lambda: listens(port), log=home / "server.log", env=env, grace=20) as pid,
        ):
            yield Server("rabbitmq", f"{HOST}:{port}", pid)


def installed() -> tuple[str, str]:
    """The paths of the server's own script and of epmd, from the system's packages if root may install them."""
    if not DEBIAN.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "rabbitmq-server"], capture_output=True)
    epmd = shutil.which("epmd")
    if not DEBIAN.exists() or epmd is None:
        raise Missing(f"no {DEBIAN}; `apt-get install rabbitmq-server` brings it")
    return str(DEBIAN), epmd
