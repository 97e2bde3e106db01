"""Every example of README.md, docs/guide and some other pages is run in an empty folder and prints what is there.

    ```python    the blocks of a page share their names, like one program; a ```text block right after one is its output
    ```console   lines after `$ ` are commands, the lines below one its output; one without any may print what it likes;
                 `export` holds for the rest of the page, and what ends in `&` runs until its end; for its port, 7117,
                 one that is free is taken

In an output `…` stands for anything.  A block after `<!-- not run: why -->` is left out.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    ROOT / "docs" / "formats" / "tip.md",
]
PAGES += [ROOT / "docs" / "operations" / name for name in ("scrub.md", "backup.md", "upkeep.md", "monitoring.md")]
PORT = "7117"
FENCE = re.compile(r"^(?P<skip><!-- not run: .+ -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: ([\w.]+)\n")
"""The first line of a block that is a file of its own, for the commands after it."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and on which line it begins."""

    kind: str
    text: str
    line: int
    skipped: bool


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(m["kind"], m["text"], page[: m.start("text")].count("\n") + 1, m["skip"] is not None)
        for m in FENCE.finditer(page)
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether an output is the one on the page; blanks at the ends of lines do not count."""
    expected, printed = ("\n".join(map(str.rstrip, text.strip().splitlines())) for text in (expected, printed))
    return re.fullmatch(re.escape(expected).replace("…", ".*"), printed, re.DOTALL) is not None


def environment() -> dict[str, str]:
    """Like a reader's: the program on the path, no home chosen."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE", "AWS"))}
    env |= {"COLUMNS": "80", "TZ": "UTC", "TAILRACE_SPARK_ARCHIVE": "off"}  # which would be left in this user's cache
    return {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command}\n{more}"
        yield command, output


def run_console(text: str, where: str, env: dict[str, str], beside: ExitStack | None = None) -> None:
    for command, output in commands(text):
        if command.endswith(" &") and beside is not None:
            program = shutil.which(command.split()[0], path=env["PATH"]) or ""
            words = [program, *shlex.split(command[:-2])[1:]]
            beside.callback(stop, subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            continue
        if command.startswith("export "):
            env.update(word.split("=", 1) for word in shlex.split(command)[1:])
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 or output, f"{where}: {command}: {done.stdout}"
        if output.strip():
            assert matches(output, done.stdout), f"{where}: {command} printed\n{done.stdout}not\n{output}"


def stop(program: subprocess.Popen[bytes]) -> None:
    """End a program that a page has started beside its commands."""
    program.terminate()
    program.wait(30)


def with_free_port(page: str) -> str:
    """A page whose server has a port that no other test run has."""
    if PORT not in page:
        return page
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return page.replace(PORT, str(taken.getsockname()[1]))


def run_python(text: str, where: str, names: dict[str, Any]) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, where, "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_HOME", raising=False)
    found = blocks(with_free_port(page.read_text()))
    names: dict[str, Any] = {"__name__": "__main__"}
    env, beside = environment(), ExitStack()
    try:
        for block, after in zip_longest(found, found[1:]):
            where = f"{page.name}:{block.line}"
            if block.kind == "console" and not block.skipped:
                run_console(block.text, where, env, beside)
            elif block.kind == "python" and (name := FILE.match(block.text)) is not None:
                Path(name[1]).write_text(block.text)
            elif block.kind == "python" and not block.skipped:
                printed = run_python(block.text, where, names)
                if after is not None and after.kind == "text":
                    assert matches(after.text, printed), f"{where} printed\n{printed}not\n{after.text}"
    finally:
        beside.close()
        if "home" in names:
            with closing(names["home"]):
                pass


def test_the_tests_of_examples_notice_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (
        "x\n```console\n$ echo a\na\n$ echo b\n```\n<!-- not run: never -->\n```python\n1 / 0\n```\n```text\nhm\n```\n"
    )
    console, python, text = blocks(page)
    assert (console.line, python.skipped, console.skipped, text.kind) == (3, True, False, "text")
    assert [*commands(console.text)] == [("echo a", "a\n"), ("echo b", "")]
    run_console(console.text, "here", environment())
    run_console("$ export A=1 B='2 3'\n$ echo $A $B\n1 2 3\n", "here", environment())
    with pytest.raises(AssertionError, match="here: echo a printed"):
        run_console("$ echo a\nb\n", "here", environment())
    with pytest.raises(AssertionError, match="here: false"):
        run_console("$ false\n", "here", environment())
    with pytest.raises(ZeroDivisionError):
        run_python(python.text, "here", {})
    assert matches("a … c\nd", "a b\nb c  \nd\n")
    assert not matches("a", "a\nb")
