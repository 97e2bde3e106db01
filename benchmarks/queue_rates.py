"""How many messages a second does a queue take and give, beside the queues that people use?"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target
from benchmarks.queues import CONTESTANTS, OURS, SHARED
from benchmarks.queues.consumers import taken_per_second
from benchmarks.queues.contract import SIZE, Contestant, Queue

MANY = 100
PUSH_ONE, PUSH_MANY = Figure("push one/s"), Figure(f"push_many({MANY})/s")
TAKE_ONE, TAKE_MANY = Figure("take + ack one/s"), Figure(f"take + ack {MANY}/s")
CONSUMERS = 4
SHARED_ONE = Figure(f"{CONSUMERS} consumers, one/s")
SHARED_MANY = Figure(f"{CONSUMERS} consumers, {MANY}/s")
NOTE = (
    f"Messages of {SIZE:,} bytes, in messages a second, every push synced before it is answered. Consumers are "
    "processes of their own; the clock runs until the last acknowledgement is durable."
)


def question(quick: bool) -> Question:
    """Pushing one by one and by a hundred, and taking with one consumer."""
    count, seconds = (2_500, 0.5) if quick else (50_000, 20.0)
    return Question(
        name="queue",
        title="messages pushed, and taken and acknowledged, by one process",
        note=_note(count, seconds),
        sides=[_side(one, partial(alone, one, count, seconds)) for one in CONTESTANTS],
        figures=[PUSH_ONE, PUSH_MANY, TAKE_ONE, TAKE_MANY],
        base=OURS.name,
        targets=[_target(PUSH_ONE, 1), _target(PUSH_MANY, 2), _target(TAKE_MANY, 2)],
        rounds=1 if quick else 5,
    )


def consumers(quick: bool) -> Question:
    """The same backlog taken by four consumers at once."""
    count, seconds = (5_000, 0.5) if quick else (100_000, 20.0)
    return Question(
        name="queue_consumers",
        title=f"messages taken and acknowledged by {CONSUMERS} consumers",
        note=_note(count, seconds),
        sides=[_side(one, partial(shared, one, count, seconds)) for one in SHARED],
        figures=[SHARED_ONE, SHARED_MANY],
        base=OURS.name,
        targets=[_target(SHARED_MANY, 2)],
        rounds=1 if quick else 5,
    )


def _note(count: int, seconds: float) -> str:
    return (
        f"{NOTE} {count:,} messages in batches of {MANY}, a tenth of that one by one, or as many as a side manages in "
        f"{seconds:g} s."
    )


def _side(one: Contestant, opened: Callable[[Path], contextlib.AbstractContextManager[Run]]) -> Side:
    return Side(one.name, f"{one.promise}; {one.how}", opened, one.peer)


def _target(figure: Figure, times: float) -> Target:
    def ratio(results: Results) -> float:
        return results.of(OURS.name, figure.name) / results.best_peer(figure)

    return Target(f"{figure.name}: ≥ {times:g} times the best peer", ratio, times)


@contextlib.contextmanager
def alone(contestant: Contestant, count: int, seconds: float, folder: Path) -> Iterator[Run]:
    """One pusher, one consumer."""
    with contestant.open(folder) as (place, queue):
        limits = itertools.chain([seconds / 5], itertools.repeat(seconds))  # the first run only warms up

        def run() -> Figures:
            seconds = next(limits)
            push_one, few = push_each(queue, count // 10, seconds)
            take_one = taken_per_second(contestant, place.address, few, 1, 1, seconds)
            push_many, many = push_batches(queue, count, seconds)
            take_many = taken_per_second(contestant, place.address, many, MANY, 1, seconds)
            return {
                PUSH_ONE.name: push_one, PUSH_MANY.name: push_many, TAKE_ONE.name: take_one, TAKE_MANY.name: take_many,
            }  # fmt: skip

        yield run


@contextlib.contextmanager
def shared(contestant: Contestant, count: int, seconds: float, folder: Path) -> Iterator[Run]:
    """A backlog, and several consumers."""
    with contestant.open(folder) as (place, queue):
        limits = itertools.chain([seconds / 5], itertools.repeat(seconds))  # the first run only warms up

        def run() -> Figures:
            seconds = next(limits)
            _, few = push_batches(queue, count // 10, seconds)
            one = taken_per_second(contestant, place.address, few, 1, CONSUMERS, seconds)
            _, many = push_batches(queue, count, seconds)
            several = taken_per_second(contestant, place.address, many, MANY, CONSUMERS, seconds)
            return {SHARED_ONE.name: one, SHARED_MANY.name: several}

        yield run


def messages(count: int) -> Sequence[bytes]:
    """Messages that no two are alike, and that no compression makes smaller."""
    return [os.urandom(SIZE) for _ in range(count)]


def push_each(queue: Queue, count: int, seconds: float = math.inf) -> tuple[float, int]:
    """Push one by one, up to a count or a time; gives messages a second, and how many there were."""
    made, done, begin = messages(min(count, 10_000)), 0, time.monotonic()
    while done < count and time.monotonic() - begin < seconds:
        queue.push(made[done % len(made)])
        done += 1
    return done / (time.monotonic() - begin), done


def push_batches(queue: Queue, count: int, seconds: float = math.inf) -> tuple[float, int]:
    """Push in batches, up to a count or a time; gives messages a second, and how many there were."""
    batch, done, begin = messages(MANY), 0, time.monotonic()
    while done < count and time.monotonic() - begin < seconds:
        queue.push_many(batch)
        done += MANY
    return done / (time.monotonic() - begin), done
