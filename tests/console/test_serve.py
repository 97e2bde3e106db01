"""`tailrace serve`, as people start it."""

from __future__ import annotations

import socket
from pathlib import Path

import tailrace
from tailrace.console.server import bound
from tests.cli.runs import Cli
from tests.console.processes import process


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        home.create_topic("orders")
    with process(tmp_path / "home") as server:
        assert server.client.get("topics").json["topics"][0]["name"] == "orders"
        with server.client.stream("topics/orders/records", Accept="text/event-stream") as stream:
            assert stream.readline() == b": open\n"
            assert server.stop() in (0, 130)


def test_a_folder_that_is_no_home_and_a_port_that_is_taken(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    assert "there is no home" in cli.fails("serve").err
    with tailrace.open(tmp_path / "home"):
        pass
    with process(tmp_path / "home") as server:
        assert "--port N chooses another" in cli.fails("serve", "--port", server.client.port).err
    assert "--token-file" in cli.fails("serve", "--host", "0.0.0.0").err


def test_no_answer_waits_for_an_acknowledgement_of_the_one_before() -> None:
    """asyncio sets TCP_NODELAY only on sockets that name their protocol; without it, each answer on an open connection
    takes 40 ms."""
    with bound("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
