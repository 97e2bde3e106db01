"""A TCP proxy on loopback that loses requests and answers, to show what a client makes of it."""

from __future__ import annotations

import contextlib
import http.client
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Literal, TypeAlias

from tests.servers.process import HOST

Fault: TypeAlias = Literal[
    "none",
    "delay",
    "cut_before",
    "reset_before",
    "repeat_before",
    "cut_after",
    "reset_after",
    "swallow_after",
    "repeat_after",
]
"""What befalls bytes: `before` the request reaches the server, or `after`, when its answer comes back.

`cut` and `reset` end the connection, `swallow` leaves it open and says nothing more, `repeat` delivers the bytes twice;
of a request that was repeated the client gets the second answer."""


class Proxy:
    """Forwards connections to one port of loopback, as faulty as `failing` says."""

    def __init__(self, target: str) -> None:
        self._target = int(target.rsplit(":", 1)[1])
        self._fault: Fault = "none"
        self._delay = 0.0
        self._times = math.inf
        self._spared = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.hit = 0
        """How often a fault has struck."""
        self.answered = 0
        """The bytes of answers that came from the server since the last call of `failing`."""
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def failing(self, fault: Fault, delay: float = 0.0, *, times: float = math.inf, at: int = 0) -> Iterator[None]:
        """Let this happen inside the block, so many times.

        A delay holds answers back for so many seconds.  `at`: how many bytes of answers get through before."""
        self._delay, self._times, self._spared, self.answered, self._fault = delay, times, at, 0, fault
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
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self._target))
            except OSError:  # the server is away
                client.close()
                continue
            self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, "before"), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, "after"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, side: str) -> None:
        client = source if side == "before" else sink
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                spared = len(data)
                if side == "after":
                    spared = max(0, self._spared - self.answered)
                    self.answered += len(data)
                if side == "before" and self._fault == "repeat_before":
                    data += _rest(source, data)
                fault = self._fault if self._fault.endswith(side) or (self._fault, side) == ("delay", "after") else ""
                if fault and (side == "before" or spared < len(data)) and self._strikes():
                    if not self._struck(fault.split("_")[0], client, sink, data, spared):
                        break
                else:
                    sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _struck(self, fault: str, client: socket.socket, sink: socket.socket, data: bytes, spared: int) -> bool:
        """Let a fault befall some bytes; whether the connection lives on."""
        if fault in ("cut", "reset"):
            if client is sink:
                sink.sendall(data[:spared])
            _end(client, reset=fault == "reset")
            return False
        if fault == "swallow":
            sink.sendall(data[:spared])
        elif fault == "delay":
            sink.sendall(data[:spared])
            time.sleep(self._delay)
            sink.sendall(data[spared:])
        elif client is sink:
            sink.sendall(data + data)
        else:
            _ask(self._target, data)
            sink.sendall(data)
        return True

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


def _rest(client: socket.socket, begun: bytes) -> bytes:
    """What is still to come of a request."""
    rest = b""
    while True:
        head, end, body = (begun + rest).partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            return rest
        if not (more := client.recv(65536)):
            raise OSError("the client has gone")
        rest += more


def _ask(port: int, request: bytes) -> None:
    """Deliver a request over a connection of its own, and wait until the server has answered it."""
    with socket.create_connection((HOST, port)) as server:
        server.sendall(request)
        answer = http.client.HTTPResponse(server)
        answer.begin()
        answer.read()
        answer.close()


@contextlib.contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    """A proxy before a server's URL, for the length of a block."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
