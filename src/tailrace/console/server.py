"""The server: binds its socket, reports its address, and runs until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tailrace.console.app import app_of
from tailrace.console.header_timeout import protocol
from tailrace.console.limits import Limits, allow_descriptors
from tailrace.console.open_home import OpenHome
from tailrace.console.security import LOOPBACK, Gate, Tokens, hosts_of
from tailrace.errors import BadSetting

BACKLOG = 2048
"""Connections that wait to be accepted, at most."""
OTHER_FILES = 512
"""Files that a server may have open besides its connections: those of its home and its libraries."""
_log = logging.getLogger("tailrace.console")
GRACE_SECONDS = 3
"""Seconds after which a stopping server cuts open streams; clients continue from their cursors."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `tailrace serve`."""

    host: str = "127.0.0.1"
    port: int = 7117
    token_file: Path | None = None
    allow_hosts: tuple[str, ...] = ()
    read_only: bool = False
    limits: Limits = Limits()


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a server that listens: its home, its address, and its token, if one was made for it."""

    home: str
    address: str
    token: str | None
    read_only: bool
    loopback: bool


def serve(
    url: str,
    serving: Serving,
    told: Callable[[Started], object],
    doctor: Callable[[str], Iterable[Any]] = lambda url: (),
) -> None:
    """Serve a home until SIGINT or SIGTERM.  Calls `told` once the server listens; `doctor` checks the machine."""
    tokens, token = _tokens(serving)
    with bound(serving.host, serving.port) as listening:
        port = listening.getsockname()[1]
        gate = Gate(
            tokens, hosts_of(serving.host, serving.allow_hosts), f"tailrace-{port}", read_only=serving.read_only
        )
        served = OpenHome(url, gate, serving.limits, doctor)
        wanted = _connections(serving.limits) + OTHER_FILES
        if (allowed := allow_descriptors(wanted)) < wanted:
            _log.warning("this process may open %d files, too few for %d connections; see ulimit -n", allowed, wanted)
        told(_started(served.home.url, serving, port, token))
        server = uvicorn.Server(config(app_of(served), serving.limits))
        asyncio.run(server.serve(sockets=[listening]))


def config(app: Any, limits: Limits) -> uvicorn.Config:
    """Return the settings with which uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=protocol(limits.head_seconds),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=_connections(limits),
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _connections(limits: Limits) -> int:
    """Return how many connections a server has at most: its streams, and short requests."""
    return limits.streams + 1024


def _tokens(serving: Serving) -> tuple[Tokens, str | None]:
    if serving.token_file is not None:
        return Tokens.of_file(serving.token_file), None
    if serving.host not in LOOPBACK:
        raise BadSetting(
            f"other machines can reach {serving.host}: give --token-file FILE, with a line `operator NAME TOKEN`, and "
            "put TLS in front; without --host only this machine can"
        )
    return Tokens.fresh()


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yields a listening socket; raises `BadSetting` if the address cannot be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio turns off Nagle's delay only for a socket that names TCP; with the delay an answer waits for 40 ms.
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
    except (OSError, OverflowError) as error:
        raise BadSetting(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from None
    with listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise BadSetting(
                f"cannot listen on {host}:{port}: {why}; --port N chooses another, --port 0 any that is free"
            ) from None
        yield listening


def _started(url: str, serving: Serving, port: int, token: str | None) -> Started:
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    return Started(
        home=url,
        address=f"http://{host}:{port}/",
        token=token,
        read_only=serving.read_only,
        loopback=serving.host in LOOPBACK,
    )
