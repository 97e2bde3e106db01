"""A node that can be killed, and comes back where it was with what it had on its disk."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.conftest import started
from tests.servers import opensearch as servers
from tests.servers.process import Server, free_ports


class Killed:
    """A node of a test's own."""

    def __init__(self, data: Path) -> None:
        port, transport = free_ports(2)
        self._data, self._ports, self._stack = data, (port, transport), contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start it, again."""
        self.server: Server = self._stack.enter_context(
            started("OpenSearch", lambda: servers.opensearch(self._data, ports=self._ports))
        )

    def kill(self) -> None:
        """Kill it: what it has not on its disk is lost, and what it remembers of deletes."""
        os.kill(self.server.pid, signal.SIGKILL)
        self._stack.close()

    def close(self) -> None:
        """Stop it."""
        self._stack.close()
