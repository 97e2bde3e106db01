"""Handlers that do what a handler should not: nothing of it is silent, and no other message pays for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadInput, BadSetting, HandlerStuck, HomeError
from tailrace.home import Home
from tailrace.queue import Envelope, Message


# --- one bad message among many
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("final", [(), (ValueError,)], ids=["", "final"])
def test_a_bad_message_of_a_batch_is_dead_alone(home: Home, attempts: int, final: tuple[type, ...]) -> None:
    """A batch that fails is tried again one by one, so that only the message to blame is given up, however few attempts
    there are; the order of each key holds."""
    queue = home.queue("q", shards=2, attempts=attempts, backoff=0.01, final=final)
    done, failed, sizes = dict[str, list[int]](), set[int](), list[int]()
    wrong: list[set[int]] = []

    def handler(envelopes: list[Envelope]) -> None:
        messages = {envelope.message for envelope in envelopes}
        sizes.append(len(messages))
        wrong.extend([messages] if len(messages) > 1 and messages & failed else [])
        if 25 in messages:
            failed.update(messages)
            raise ValueError("25 is not wanted")
        for envelope in envelopes:
            done.setdefault(str(envelope.shard_key), []).append(envelope.message)

    queue.push_many([Message(n, f"k{n % 3}") for n in range(50)])
    with queue.tail(handler, batch=True, batch_size=50, threads=1):
        assert queue.drain(60)
    assert max(sizes) > 1
    assert not wrong, "what has failed in a batch comes alone"
    assert done == {f"k{k}": [n for n in range(k, 50, 3) if n != 25] for k in range(3)}
    (letter,) = queue.dead()
    assert (letter.message, letter.attempts) == (b"25", 1 if final else attempts)
    assert letter.reason == "ValueError: 25 is not wanted"
    assert (queue.stats().acked, queue.stats().dead) == (49, 1)


def test_what_a_batch_has_acknowledged_by_hand_is_not_tried_again(home: Home) -> None:
    """Then it is known which message is to blame, and its attempt counts."""
    queue, got = home.queue("q", shards=1, attempts=1), list[int]()

    def handler(envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            if envelope.message == 9:
                raise ValueError("no")
            got.append(envelope.message)
            envelope.ack()

    queue.push_many(range(10))
    with queue.tail(handler, batch=True, batch_size=10, threads=1):
        assert queue.drain(60)
    assert (sorted(got), queue.stats().dead, queue.stats().errored) == (list(range(9)), 1, 1)


def test_a_message_of_a_batch_that_cannot_be_read(home: Home) -> None:
    class Picky:
        def encode(self, message: Any) -> bytes:
            return str(message).encode()

        def decode(self, data: bytes) -> Any:
            return int(data)

    queue, got = home.queue("q", shards=1, codec=Picky()), list[int]()
    queue.push_many([Message(n, "key") for n in (1, "x", 3)])
    with queue.tail(lambda envelopes: got.extend(one.message for one in envelopes), batch=True):
        assert queue.drain(60)
    assert got == [1, 3]
    assert [letter.message for letter in queue.dead()] == [b"x"]


# --- what handlers return and raise
def test_a_handler_with_yield_is_refused(home: Home) -> None:
    def handler(envelope: Envelope) -> Iterator[int]:
        yield 1

    with pytest.raises(BadSetting, match="without `yield`"):
        home.queue("q").tail(handler)
    assert home.queues() == []


def test_what_is_not_done_when_a_handler_returns_is_not_acknowledged(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=1)
    with ThreadPoolExecutor() as pool:
        queue.push("generator")
        with queue.tail(lambda envelope: (n for n in [envelope])):
            assert queue.drain(60)
        queue.push("future")
        with queue.tail(lambda envelope: pool.submit(print)):
            assert queue.drain(60)
        queue.push("by hand")
        with queue.tail(lambda envelope: pool.submit(envelope.ack), manual=True):
            assert queue.drain(60)
        queue.push("a value")
        with queue.tail(lambda envelope: False):
            assert queue.drain(60)
    reasons = [letter.reason for letter in queue.dead()]
    assert ["generator" in reasons[0], "Future" in reasons[1], len(reasons)] == [True, True, 2]
    assert queue.stats().acked == 2


def test_what_ends_a_coroutine_does_not_end_the_pool(home: Home) -> None:
    """More handlers are cancelled than there are threads."""
    queue, attempts = home.queue("q", shards=1, attempts=4, backoff=0.001, max_backoff=0.01), list[int]()

    async def handler(envelope: Envelope) -> None:
        attempts.append(envelope.attempt)
        if envelope.attempt < 4:
            raise asyncio.CancelledError

    queue.push_many(range(3))
    with queue.tail(handler, threads=2):
        assert queue.drain(60)
    assert (len(attempts), queue.stats().acked, queue.stats().errored) == (12, 3, 9)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [Mute(), FileNotFoundError("no file \udcff.txt"), ValueError("\ud800")])
def test_errors_that_cannot_be_told_as_they_are(home: Home, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    queue, attempts = home.queue("q", shards=1, attempts=2, backoff=0.001), list[int]()

    def handler(envelope: Envelope) -> None:
        attempts.append(envelope.attempt)
        raise error

    queue.push("x")
    with queue.tail(handler, threads=1) as worker:
        assert queue.drain(60)
        assert worker.running
    (letter,) = queue.dead()
    assert (attempts, type(error).__name__ in letter.reason) == ([1, 2], True)
    assert type(error).__name__ in str(queue.explain(0, 0))
    assert type(error).__name__ in caplog.text.encode().decode(), "a log file takes it"


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), "soon", True])
def test_a_retry_after_no_time_at_all_is_refused(home: Home, after: Any) -> None:
    """The handler hears of it, and the message is tried again as after any other error."""
    queue, told = home.queue("q", shards=1, backoff=0.001), list[Exception]()

    def handler(envelope: Envelope) -> None:
        if envelope.attempt == 1:
            try:
                envelope.retry(after=after)
            except BadInput as error:
                told.append(error)
                raise

    queue.push("x", "key")
    queue.push("y", "key")
    with queue.tail(handler):
        assert queue.drain(60)
    assert (len(told), queue.stats().acked) == (2, 2)


def test_the_reason_of_a_dead_letter_may_be_an_error(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push("x")
    with queue.tail(lambda envelope: envelope.dead(ValueError("not \ud800 wanted"))) as worker:
        assert queue.drain(60)
        assert worker.running
    assert [letter.reason for letter in queue.dead()] == ["not \\ud800 wanted"]


# --- threads and processes
def test_a_handler_may_shut_its_own_worker_down(home: Home) -> None:
    """It is not waited for by itself: the worker ends when the handler has."""
    queue, after = home.queue("q", shards=1), list[bool]()
    queue.push("x")

    def handler(envelope: Envelope) -> None:
        worker.shutdown()
        after.append(worker.running)

    worker = queue.tail(handler, grace=600)
    assert worker.join(60)
    assert (after, queue.stats().acked) == ([True], 1)


def test_a_consumer_whose_handlers_never_end_ends(home: Home) -> None:
    """It would fill its process with threads; the shards are others' at once."""
    go = threading.Event()
    queue = home.queue("q", shards=1, timeout=0.02, attempts=100, backoff=0.001, max_backoff=0.002)
    queue.push("x")
    worker = queue.tail(lambda envelope: go.wait(120), threads=1)
    try:
        assert worker.join(100)
        assert isinstance(worker.error, HandlerStuck)
        assert not queue.stats().consumers
        assert queue.stats().backlog == 1
    finally:
        go.set()


@pytest.mark.parametrize("how", ["returns", "exits", "raises", "acknowledges"])
def test_a_handler_that_forks(tmp_path: Path, how: str) -> None:
    """The child has a copy of all that its parent has in hand, and must handle none of it."""
    notes = tmp_path / "notes"
    with tailrace.open(tmp_path / "home") as home:
        queue, codes = home.queue("q", shards=1), list[int]()

        def handler(envelope: Envelope) -> None:
            with notes.open("a") as out:
                out.write(f"{envelope.message}\n")
            if envelope.message == 0:
                if (child := os.fork()) == 0:
                    if how == "exits":
                        raise SystemExit(3)
                    if how == "raises":
                        raise ValueError
                    if how == "acknowledges":
                        try:
                            envelope.ack()
                        except HomeError:
                            raise SystemExit(4) from None
                    return
                codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        queue.push_many(range(20))
        with queue.tail(handler, threads=1):
            assert queue.drain(60)
        assert queue.stats().acked == 20
    assert codes == [{"returns": 0, "exits": 3, "raises": 1, "acknowledges": 4}[how]]
    assert sorted(map(int, notes.read_text().split())) == list(range(20)), "a child has handled messages of its parent"
