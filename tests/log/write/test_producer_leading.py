"""Producers whose records are committed by the thread that waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tailrace.errors import TimedOut
from tailrace.storage.tables import Action
from tests.log.watched import eventually, held, values, watched


@contextmanager
def _interrupting(table: Any, *, landed: bool) -> Iterator[None]:
    """Ctrl-C interrupts this thread's first write in a block, before or after it happened; other threads it spares."""
    write, this = table.write, threading.current_thread()

    def interrupted(*actions: Action) -> Any:
        if threading.current_thread() is not this:
            return write(*actions)
        table.write = write
        if landed:
            write(*actions)
        raise KeyboardInterrupt

    table.write = interrupted
    yield
    table.write = write


def test_a_thread_that_waits_commits_by_itself() -> None:
    topic, table = watched()
    wrote = []
    write = table.write

    def noted(*actions: Action) -> Any:
        wrote.append(threading.get_ident())
        return write(*actions)

    with topic.producer() as out:
        out.send(b"a", b"0").result()
        table.write = noted  # type: ignore[method-assign]
        for n in range(1, 21):
            assert out.send(b"a", b"%d" % n).result() == n
    assert wrote.count(threading.get_ident()) > len(wrote) / 2, "a tick of the producer's thread may come between"


@pytest.mark.parametrize("landed", [False, True])
def test_an_interrupted_commit_is_finished_by_the_producers_thread(landed: bool) -> None:
    """Once, at its place, whether the interrupted write had happened or not."""
    topic, table = watched()
    with topic.producer() as out:
        first, interrupted = out.send(b"a", b"0").result(), 0
        for n in range(1, 40, 2):
            with _interrupting(table, landed=landed):
                ack = out.send(b"a", b"%d" % n)
                with suppress(KeyboardInterrupt):
                    interrupted += 1
                    ack.result()
                    interrupted -= 1  # the producer's thread was faster
            assert ack.result(60) == n
            after = out.send(b"a", b"%d" % (n + 1))
            assert after.result(60) == n + 1
    assert first == 0
    assert interrupted
    assert values(topic) == [b"%d" % n for n in range(n + 2)]


def test_who_waits_for_a_while_only_does_not_commit() -> None:
    """A commit can take longer than that."""
    topic, table = watched()
    with topic.producer() as out:
        with held(table):
            ack = out.send(b"a", b"1")
            with pytest.raises(TimedOut):
                ack.result(0.05)
        assert ack.result(10) == 0


def test_what_was_sent_meanwhile_is_committed_next_whoever_waits() -> None:
    """By one of those who wait, or, if nobody does or only for a while, by the producer's thread."""
    topic, table = watched()
    with topic.producer() as out, ThreadPoolExecutor(4) as pool:
        for timeout in None, 10, 0:
            with held(table):
                before = table.appends
                one = pool.submit(lambda: out.send(b"a", b"1").result())
                eventually(lambda before=before: table.appends > before)
                acks = [out.send(b"a", b"2") for _ in range(3)]
                others = [] if timeout == 0 else [pool.submit(ack.result, timeout) for ack in acks]
            eventually(lambda acks=acks: all(ack.done() for ack in acks))
            assert [ack.result() for ack in acks] == [one.result(10) + n for n in (1, 2, 3)]
            assert [other.result(10) for other in others] == [ack.result() for ack in acks[: len(others)]]
