"""A TCP proxy on loopback that loses requests and answers, to show what a client makes of it."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Literal, TypeAlias

from tests.servers.process import HOST

Fault: TypeAlias = Literal["none", "delay", "cut_before", "cut_after", "reset_before", "reset_after"]
"""What befalls bytes: `before` the request reaches the server, or `after`, when its answer comes back."""


class Proxy:
    """Forwards connections to one port of loopback, as faulty as `failing` says."""

    def __init__(self, target: str) -> None:
        self._target = int(target.rsplit(":", 1)[1])
        self._fault: Fault = "none"
        self._delay = 0.0
        self._times = math.inf
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.hit = 0
        """How often a fault has struck."""
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def failing(self, fault: Fault, delay: float = 0.0, *, times: float = math.inf) -> Iterator[None]:
        """Let this happen inside the block, so many times; a delay holds answers back for so many seconds."""
        self._fault, self._delay, self._times = fault, delay, times
        try:
            yield
        finally:
            self._fault = "none"

    def close(self) -> None:
        """Stop accepting, and drop every connection."""
        for one in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._target))
            except OSError:
                return
            self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, "before"), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, "after"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, side: str) -> None:
        client = source if side == "before" else sink
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._fault.endswith(side) and self._strikes():
                    _end(client, reset=self._fault.startswith("reset"))
                    break
                if self._fault == "delay" and side == "after" and self._strikes():
                    time.sleep(self._delay)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _strikes(self) -> bool:
        self._times -= 1
        self.hit += self._times >= 0
        return self._times >= 0


def _end(client: socket.socket, *, reset: bool) -> None:
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The other pump may be waiting for this socket, and until it wakes the kernel does not let go of it.
        client.shutdown(socket.SHUT_RD)
        client.close()


@contextlib.contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    """A proxy before a server's URL, for the length of a block."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
