"""Lending: what a borrower is told who says the same thing twice, and what becomes of messages that nobody borrows."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace.home import Home
from tailrace.queue.lending import Lender
from tests.queue.conftest import until


def test_an_ack_that_is_repeated_while_the_first_is_under_way_gets_the_same_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, told = home.queue("q", shards=1), list[str]()
    queue.push("x")
    with Lender(queue) as lender:
        loans: list[Any] = []
        until(lambda: loans.extend(lender.take(1, 60.0)) or loans)
        ack = lender._consumer.ack

        def again() -> None:
            try:
                lender.ack(loans[0].id)
                told.append("acked")
            except Exception as error:
                told.append(repr(error))

        second = threading.Thread(target=again)

        def slow(*args: Any) -> bool:
            second.start()
            second.join(0.2)
            return ack(*args)

        monkeypatch.setattr(lender._consumer, "ack", slow)
        lender.ack(loans[0].id)
        second.join()
        until(lambda: lender.settled(loans[0].id) == "acked")
    assert told == ["acked"]


def test_messages_that_nobody_has_borrowed_are_not_tried(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push_many(range(3))
    for _ in range(3):
        lender = Lender(queue, idle_seconds=0.1)
        until(lambda lender=lender: lender.emitted)  # type: ignore[misc]
        assert lender.join(30)
    attempts: list[int] = []
    with queue.tail(lambda envelope: attempts.append(envelope.attempt)):
        assert queue.drain(30)
    assert attempts == [1, 1, 1]
