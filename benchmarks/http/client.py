"""A client that costs next to nothing, so that the server is what is measured: requests are bytes made beforehand."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from benchmarks.harness import expect


def request(method: str, path: str, body: bytes, token: str, **headers: str) -> bytes:
    """A request on a connection that stays open."""
    fields = {"Host": "127.0.0.1", "Authorization": token, "Content-Length": str(len(body)), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """One connection to a server of this machine; `ask` sends a request and reads its whole answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 20)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, sent: bytes) -> tuple[dict[str, str], bytes]:
        """The headers and the body of an answer that says that all went well."""
        self._socket.sendall(sent)
        status = self._file.readline()
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = self._body(headers)
        expect(f"status {status!r} {body[:200]!r}", status.split()[1][:1], b"2")
        return headers, body

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self._file.read(int(headers.get("content-length", "0")))
        parts = []
        while size := int(self._file.readline(), 16):
            parts.append(self._file.read(size))
            self._file.readline()
        self._file.readline()
        return b"".join(parts)


def ask_all(port: int, requests: Sequence[bytes], clients: int) -> None:
    """Send every request once, each of some clients its share, one after the other."""

    def share(number: int) -> None:
        with Connection(port) as connection:
            for one in requests[number::clients]:
                connection.ask(one)

    with ThreadPoolExecutor(clients) as pool:
        for _ in pool.map(share, range(clients)):
            pass
