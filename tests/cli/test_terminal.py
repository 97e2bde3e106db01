"""In a terminal: following, the progress bar, questions, colours."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

import tailrace
from tests.cli.runs import PROGRAM, Cli
from tests.cli.terminal import Terminal


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """A topic with a few records."""
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="one\ntwo\nthree\n")
    return cli


def shown(text: str) -> str:
    """What is left of an output without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_tail_follows_and_ends_cleanly(orders: Cli) -> None:
    with Terminal([PROGRAM, "topic", "tail", "orders", "-f", "-n", "1"], orders.env()) as terminal:
        before = terminal.wait_for("three")
        assert "two" not in before
        orders("topic", "append", "orders", input="four\n")
        terminal.wait_for("four")
        orders.process("topic", "append", "orders", input=b"five\n")
        terminal.wait_for("0:4")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.seen
        assert len(terminal.seen.splitlines()) == 3


def test_follow_into_a_pipe_gives_each_line_at_once(orders: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"'{PROGRAM}' topic tail orders -f -n 0 --json | while read -r line; do echo \"$line\" >> '{out}'; done"
    with Terminal(["/bin/sh", "-c", command], orders.env()):
        for turn in range(30):  # few enough to fit into a buffer
            orders("topic", "append", "orders", input=f"turn {turn}\n")
            time.sleep(0.2)
            if out.exists():
                break
        assert json.loads(out.read_text().splitlines()[0])["value"].startswith("turn ")


def test_a_bar_appears_when_it_takes_long(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    path.write_text("".join(f'{{"id":{n},"v":"{"x" * 50}"}}\n' for n in range(600_000)))
    with Terminal([PROGRAM, "topic", "append", "orders", str(path), "--key", "id"], orders.env()) as terminal:
        bar = shown(terminal.wait_for("MB"))
        assert re.search(r"appending to orders .*━.* [\d.]+/[\d.]+ MB", bar)
        assert terminal.end() == 0
        assert "appended 600,000 records to 'orders'" in shown(terminal.seen)
        frames = shown(terminal.seen).replace("\r", "\n").splitlines()
        assert max(map(len, frames)) <= 80


def test_a_bar_shows_what_upkeep_has_written(orders: Cli) -> None:
    with tailrace.open(orders.home) as home:
        topic = home.create_topic("large", merge_bytes=1 << 20)
        for _ in range(150):
            topic.append([(b"k", bytes(40_000))])
    with Terminal([PROGRAM, "upkeep", "run", "--rate", "2MiB"], orders.env()) as terminal:
        assert re.search(r"upkeep .*━", shown(terminal.wait_for("MB")))
        assert terminal.end() == 0
        assert re.search(r"large\s+wrote [\d.]+ MiB again", shown(terminal.seen))


def test_no_bar_for_quick_work_nor_without_a_terminal(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_text("a\n")
    with Terminal([PROGRAM, "topic", "append", "orders", str(path)], orders.env()) as terminal:
        assert terminal.end() == 0
        assert "━" not in terminal.seen
    path.write_text("a\n" * 2_000_000)
    assert orders.process("topic", "append", "orders", path).err == ""


def test_what_is_typed_is_appended_at_once(orders: Cli) -> None:
    with Terminal([PROGRAM, "topic", "append", "orders"], orders.env()) as terminal:
        terminal.wait_for("reading lines from the terminal; Ctrl-D ends")
        terminal.type("typed\n")
        with tailrace.open(orders.home) as home, home.topic("orders").follow(start=3) as records:
            assert next(records).value == b"typed"
        terminal.type("\x04")
        terminal.wait_for("appended 1 record")
        assert terminal.end() == 0


def test_an_interrupted_append_says_how_far_it_came(orders: Cli) -> None:
    with Terminal([PROGRAM, "topic", "append", "orders"], orders.env()) as terminal:
        terminal.wait_for("Ctrl-D ends")
        terminal.type("a\nb\n")
        with tailrace.open(orders.home) as home, home.topic("orders").follow(start=3) as records:
            assert [next(records).value, next(records).value] == [b"a", b"b"]
        terminal.interrupt()
        terminal.wait_for("tailrace: interrupted; 2 records appended")
        assert terminal.end() == 130


def test_a_question_is_asked_and_answered(orders: Cli) -> None:
    with Terminal([PROGRAM, "topic", "delete", "orders"], orders.env()) as terminal:
        terminal.wait_for("for good? [y/N]:")
        terminal.type("y\n")
        terminal.wait_for("deleted topic 'orders' with 3 records")
        assert terminal.end() == 0


def test_binary_is_not_for_a_terminal(orders: Cli) -> None:
    with Terminal([PROGRAM, "topic", "read", "orders", "--format", "arrow"], orders.env()) as terminal:
        assert terminal.end() == 1
        assert "arrow is not for a terminal; write it to a file: --output FILE" in terminal.seen


@pytest.mark.parametrize("columns", [80, 60])
def test_screens_fit(orders: Cli, columns: int) -> None:
    for command in (["--help"], ["topic", "append", "--help"], ["topic", "describe", "orders"], ["doctor"]):
        with Terminal([PROGRAM, *command], orders.env(), columns=columns) as terminal:
            assert terminal.end() == 0
            assert max(map(len, shown(terminal.seen).splitlines())) <= columns, shown(terminal.seen)


def test_colours_only_in_a_terminal(orders: Cli) -> None:
    with Terminal([PROGRAM, "doctor"], orders.env()) as terminal:
        assert terminal.end() == 0
        assert "\x1b[" in terminal.seen
    assert "\x1b[" not in orders.process("doctor").out
