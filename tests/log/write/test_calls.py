"""The Python calls of one durable append: an upper bound, so that they do not creep back."""

from __future__ import annotations

from pathlib import Path

import tailrace
from tests.calls import ROUNDS, usual_calls

MOST = 320
"""A little more than Python 3.11 needs; later versions call no function for a comprehension."""


def test_one_send_and_its_acknowledgement(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("orders", partitions=4)
        with topic.producer() as out:
            out.send(b"first", b"v").result()
            assert usual_calls(lambda: out.send(b"order-7", b"v" * 200).result()) <= MOST
        assert len(list(topic.records())) == 1 + ROUNDS
