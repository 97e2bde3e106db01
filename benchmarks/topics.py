"""Does a home with very many topics open, list and describe them quickly?"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Run, Side, Target, expect, timed
from tailrace.cli.topic.topics import described
from tailrace.home import Home
from tailrace.log.catalog import overview

PARTITIONS = 8
OPEN = Figure("open, s", 3, more=False)
LIST = Figure("list all, s", 3, more=False)
DESCRIBE = Figure("describe all, s", 3, more=False)
COMMAND = Figure("`tailrace topic list`, s", 3, more=False)
FIGURES = [OPEN, LIST, DESCRIBE, COMMAND]


def question(quick: bool) -> Question:
    """A home with a thousand topics, opened, listed and described."""
    counts = [1, 100] if quick else [1, 1000]
    names = [f"{count:,} topics" for count in counts]
    return Question(
        name="topics",
        title="homes of many topics",
        note=f"Each topic has {PARTITIONS} partitions and a few records. Opening: the home, one topic and its ends. "
        "Listing: each topic's name, partitions and records. Describing: each topic's settings, offsets and groups, "
        "one after the other. The command is a process of its own, from start to end.",
        sides=[Side(name, "tailrace", partial(filled, count=count)) for name, count in zip(names, counts, strict=True)],
        figures=FIGURES,
        base=names[0],
        targets=[under_a_second(figure, names[-1]) for figure in FIGURES[:3]],
        rounds=3 if quick else 7,
    )


def under_a_second(figure: Figure, side: str) -> Target:
    """What people wait for."""
    return Target(f"{side}: {figure.name} under 1", lambda results: results.of(side, figure.name), 1.0, at_most=True)


@contextlib.contextmanager
def filled(folder: Path, count: int) -> Iterator[Run]:
    """A home of so many topics."""
    with tailrace.open(folder) as home:
        for n in range(count):
            home.topic(f"topic-{n:04}", partitions=PARTITIONS).append([(b"%d" % k, b"v") for k in range(10)])
    program = str(Path(sys.executable).with_name("tailrace"))

    def run() -> Figures:
        with contextlib.ExitStack() as stack:
            opened, home = timed(lambda: open_once(stack, folder))
            listed, found = timed(lambda: home.store.run(overview()))
            expect("topics", len(found), count)
            told, about = timed(lambda: [described(home, home.topic(name)) for name, _ in found])
            expect("records", sum(one["records"] for one in about), 10 * count)
        command = [program, "topic", "list", "--json", "--home", str(folder)]
        shown, _ = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        return {OPEN.name: opened, LIST.name: listed, DESCRIBE.name: told, COMMAND.name: shown}

    yield run


def open_once(stack: contextlib.ExitStack, folder: Path) -> Home:
    """The home, ready to be used."""
    home = stack.enter_context(tailrace.open(folder))
    expect("partitions", len(home.topic("topic-0000").ends()), PARTITIONS)
    return home
