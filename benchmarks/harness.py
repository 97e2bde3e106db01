"""How a question is asked: every side opened and warmed up, then measured in turn, several rounds, medians."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.contract import Contestant, Log

Figures = dict[str, float]
Run = Callable[[], Figures]
T = TypeVar("T")


class Wrong(Exception):
    """A side did not do what was asked of it: records are missing, or are not the ones that were appended."""


class Absent(Exception):
    """A figure that is not there, since its side failed."""


@dataclass(frozen=True)
class Side:
    """One row of a table: `open` prepares it on a folder and gives what is to be run once a round."""

    name: str
    mode: str
    open: Callable[[Path], AbstractContextManager[Run]]
    peer: bool = False


@dataclass(frozen=True)
class Figure:
    """One column: its unit is its name; `more` says whether more is better, `ratio` whether to divide by the base."""

    name: str
    digits: int = 0
    more: bool = True
    ratio: bool = True


@dataclass
class Result:
    """What came out for a side: figures of each round, or why there are none."""

    side: Side
    rounds: list[Figures] = field(default_factory=list)
    failure: str = ""

    def values(self, figure: str) -> list[float]:
        """A figure in every round."""
        if self.failure:
            raise Absent(f"{self.side.name} failed")
        return [figures[figure] for figures in self.rounds]

    def median(self, figure: str) -> float:
        """The middle of a figure's rounds."""
        return statistics.median(self.values(figure))


class Results(dict[str, Result]):
    """The results of a question by the name of the side."""

    def of(self, side: str, figure: str) -> float:
        """A side's median."""
        return self[side].median(figure)

    def best_peer(self, figure: Figure) -> float:
        """The best median of the peers that promise as much."""
        medians = [result.median(figure.name) for result in self.values() if result.side.peer and not result.failure]
        if not medians:
            raise Absent("no peer answered")
        return max(medians) if figure.more else min(medians)


@dataclass(frozen=True)
class Target:
    """What must come out: a value of the results, and the least (or most) it may be."""

    text: str
    value: Callable[[Results], float]
    bound: float
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Whether that value is good enough."""
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Question:
    """A table: its sides, its columns, what is compared with the `base` side, and the targets."""

    name: str
    title: str
    note: str
    sides: Sequence[Side]
    figures: Sequence[Figure]
    base: str
    targets: Sequence[Target] = ()
    rounds: int = 5


def ask(question: Question, folder: Path, say: Callable[[str], None]) -> Results:
    """Open and warm up each side, then measure them in turn: A B C, A B C, …"""
    results = Results({side.name: Result(side) for side in question.sides})
    # What was built before the clock starts, the records above all, is not to be looked through by every collection.
    gc.collect()
    gc.freeze()
    with contextlib.ExitStack() as stack:
        runs = {name: run for name, result in results.items() if (run := _prepare(result, folder, stack, say))}
        for number in range(question.rounds):
            for name, run in runs.items():
                _measure(results[name], run)
            say(f"round {number + 1} of {question.rounds} done")
    gc.unfreeze()
    return results


def _prepare(result: Result, folder: Path, stack: contextlib.ExitStack, say: Callable[[str], None]) -> Run | None:
    say(f"warming up: {result.side.name}")
    place = folder / result.side.name.replace(" ", "-").replace(",", "")
    place.mkdir(parents=True)
    try:
        run = stack.enter_context(result.side.open(place))
        run()
    except Exception as error:
        result.failure = _reason(error)
        return None
    return run


def _measure(result: Result, run: Run) -> None:
    if result.failure:
        return
    gc.collect()
    # Else the next side pays for what the one before left to be written.
    os.sync()
    try:
        result.rounds.append(run())
    except Exception as error:
        result.failure = _reason(error)


def _reason(error: Exception) -> str:
    """What is said of a side that failed; not of one that somebody stopped, which failed at cleaning up at most."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, SystemExit | KeyboardInterrupt):
            raise before
        before = before.__context__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The seconds some work takes, and its answer."""
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer


def expect(what: str, found: object, wanted: object) -> None:
    """Stop a side whose count or content is not right."""
    if found != wanted:
        raise Wrong(f"{what}: {found}, not {wanted}")


def side(contestant: Contestant, prepare: Callable[[Log], Run], how: str) -> Side:
    """A contestant with what `prepare` makes of its log, and how it does that."""

    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Run]:
        with contestant.open(folder) as log:
            yield prepare(log)

    return Side(contestant.name, f"{contestant.promise}; {how}", opened, contestant.peer)
