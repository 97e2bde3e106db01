"""Fixtures for RabbitMQ: a broker for the run, queues of their own for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.adaptors.rabbitmq.source import queue_follower, stream_follower
from tests.adaptors.rabbitmq.place import Place
from tests.conftest import started
from tests.servers import rabbitmq as servers
from tests.servers.rabbitmq import RabbitServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and the certificate of a server on loopback."""
    folder = tmp_path_factory.mktemp("certificates")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    new, sign = (
        "req -newkey rsa:2048 -nodes",
        "x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy",
    )
    for words in (
        f"{new} -x509 -keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=critical,keyCertSign",
        f"{new} -keyout server.key -out server.csr -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1",
        f"{sign} -in server.csr -out server.pem -days 2",
    ):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def rabbitmq(certificates: Path) -> Iterator[RabbitServer]:
    """RabbitMQ with streams and TLS."""
    with started("RabbitMQ", lambda: servers.rabbitmq(streams=True, certificates=certificates)) as server:
        assert isinstance(server, RabbitServer)
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers that have nothing say so sooner."""
    for module in (queue_follower, stream_follower):
        monkeypatch.setattr(module, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(queue_follower, "LOOK_SECONDS", 0.2)


@pytest.fixture
def place(rabbitmq: RabbitServer) -> Iterator[Place]:
    """Queues of a test: their names begin alike."""
    with Place(rabbitmq.uri(), rabbitmq.streams, f"t{os.getpid()}-{next(_numbers)}.") as place:
        yield place
