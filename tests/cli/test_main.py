"""The command line as a whole: help, exit codes, homes, pipes, completion, start-up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tailrace import __version__
from tailrace.cli.main import asks_for_outline, build, command_in
from tests.cli.runs import PROGRAM, Cli
from tests.docs.test_examples import ROOT


def commands(at: Any = None, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command there is, with the words that lead to it."""
    at = at or typer.main.get_command(build())
    if hasattr(at, "commands"):
        for name, inner in at.commands.items():
            yield from commands(inner, (*way, name))
    else:
        yield way, at


def test_the_commands_are_these() -> None:
    assert {" ".join(way) for way, _ in commands()} >= {
        "doctor",
        "group delete", "group describe", "group list", "group reset",
        "home create", "home info",
        "topic append", "topic create", "topic delete", "topic describe", "topic export", "topic import",
        "topic list", "topic publish", "topic read", "topic set", "topic tail",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("way", "command"), list(commands()), ids=lambda way: " ".join(way) if isinstance(way, tuple) else ""
)
def test_every_command_has_help_and_examples(cli: Cli, way: tuple[str, ...], command: Any) -> None:
    shown = cli(*way, "--help").out
    assert "Examples:" in shown
    assert f"$ tailrace {' '.join(way)}" in shown or f"| tailrace {' '.join(way)}" in shown
    if way[0] in ("topic", "group", "home", "doctor"):
        assert "--home" in shown
    assert "--json" in shown, "as the README says of every command"
    assert "<bool>" not in shown, "a flag takes no value"
    assert all(parameter.help for parameter in command.params if parameter.name != "help")


def test_the_page_about_the_command_line_has_every_command() -> None:
    page = (ROOT / "docs" / "operations" / "cli.md").read_text()
    rows = dict(re.findall(r"^\| `tailrace((?: \w+)*)` \| (.*) \|$", page, re.MULTILINE))
    listed = {(*group.split(), name) for group, text in rows.items() for name in re.findall(r"`(\w+)`", text)}
    assert listed == {way for way, _ in commands()}


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"tailrace {__version__}\n"


def test_without_a_command_there_is_help(cli: Cli) -> None:
    for way in ((), ("topic",), ("group",), ("home",)):
        ran = cli.process(*way)
        assert "Usage: tailrace" in ran.out + ran.err


def test_commands_are_shown_in_panels(cli: Cli) -> None:
    shown = cli("--help").out
    panels = re.findall(r"─ (.+?) ─", shown)
    assert panels == ["Options", "Ways to use the log", "Pipelines", "The home"]
    assert shown.index("│ topic ") < shown.index("─ Pipelines ─") < shown.index("│ run ") < shown.index("│ doctor ")


def test_exit_codes(cli: Cli) -> None:
    assert cli.process("topic", "create", "orders", "-p", 2).code == 0
    refused = cli.process("topic", "create", "orders")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "tailrace: topic 'orders' exists already, with 2 partitions\n"
    assert len(refused.err.splitlines()) == 1
    for wrong in (
        ("topic", "creat"),
        ("topic", "create"),
        ("topic", "read", "orders", "--max", "many"),
        ("--hom", "x"),
    ):
        ran = cli.process(*wrong)
        assert (ran.code, ran.out) == (2, ""), ran
        assert "Traceback" not in ran.err
    assert "Did you mean 'create'" in cli.process("topic", "creat").err


@pytest.mark.parametrize(
    "where", [("HOME", "topic", "list"), ("topic", "HOME", "list"), ("topic", "list", "HOME"), ("topic", "list")]
)
def test_a_home_before_and_after_the_command_and_by_the_environment(
    cli: Cli, tmp_path: Path, where: tuple[str, ...]
) -> None:
    other = Cli(tmp_path / "other")
    cli("topic", "create", "right")
    other("topic", "create", "wrong")
    given = [word for part in where for word in (("--home", str(cli.home)) if part == "HOME" else (part,))]
    environment = cli if "HOME" not in where else other
    assert [topic["name"] for topic in environment(*given, "--json").json] == ["right"]


def test_the_nearest_home_wins(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "right")
    found = cli("--home", tmp_path / "a", "topic", "--home", tmp_path / "b", "list", "--home", cli.home, "--json").json
    assert [topic["name"] for topic in found] == ["right"]


def test_the_default_home_is_in_the_working_folder(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TAILRACE_HOME"}
    for command in (["topic", "create", "orders"], ["topic", "list"]):
        subprocess.run([PROGRAM, *command], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == [".tailrace"]


def test_a_pipe_that_is_closed_is_no_trouble(cli: Cli) -> None:
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="some value\n" * 100_000)
    for options in ("", "--format jsonl", "--json", "--format arrow"):
        command = f"'{PROGRAM}' topic read orders {options} | head -c 10"
        done = subprocess.run(["/bin/sh", "-c", command], env=cli.env(), capture_output=True, timeout=60)
        assert len(done.stdout) == 10
        assert done.stderr == b""


def test_errors_of_the_disk_are_one_line(cli: Cli, tmp_path: Path) -> None:
    cli.home = tmp_path / "file"
    cli.home.touch()
    ran = cli.process("topic", "create", "orders")
    assert (ran.code, ran.err) == (1, f"tailrace: {cli.home} is a file; a home is a folder\n")


def completed(cli: Cli, words: str) -> list[str]:
    """What the shell would offer after these words."""
    ran = cli.process(_TAILRACE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    return ran.out.split()


def test_the_shell_completes_commands_topics_and_groups(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders")
    cli("topic", "create", "others")
    cli("topic", "create", "clicks")
    assert completed(cli, "tailrace to") == ["topic"]
    assert completed(cli, "tailrace topic describe o") == ["orders", "others"]
    assert completed(cli, "tailrace topic read --format pa") == ["parquet"]
    assert completed(cli, "tailrace group list --topic c") == ["clicks"]
    assert completed(cli, f"tailrace --home {tmp_path}/none topic read o") == []
    assert not (tmp_path / "none").exists()


def test_it_starts_without_what_it_does_not_need() -> None:
    heavy = "{'pyarrow', 'boto3', 'botocore', 'obstore', 'apsw', 'asyncio', 'rich.table', 'rich.progress'}"
    code = f"import sys, tailrace.cli.main as m; m.build(); sys.exit(', '.join({heavy} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("way", [way for way, _ in commands()], ids=" ".join)
def test_each_command_is_found_without_the_others(way: tuple[str, ...]) -> None:
    assert command_in(["--home", "topic", *way, "--json"]) == way[0]
    part = dict(commands(typer.main.get_command(build(way[0]))))
    assert way in part
    assert {found[0] for found in part} < {found[0] for found, _ in commands()}


def test_what_names_no_command_has_them_all() -> None:
    for words in ([], ["--help"], ["--home", "topic"], ["--home=x", "-h", "topic"], ["--version"]):
        assert command_in(words) is None
    assert len(dict(commands(typer.main.get_command(build("topc"))))) == len(dict(commands()))


HEAVY = {"pyarrow", "boto3", "botocore", "obstore", "asyncio", "http.client", "pyspark", "starlette", "uvicorn"}


def loaded(*words: str | Path) -> set[str]:
    """The modules that a process has loaded after a command."""
    code = (
        "import sys, tailrace.cli.main as m\n"
        "try: m.main()\nexcept SystemExit as end: assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_the_help_opens_no_home_and_loads_no_command_of_a_group() -> None:
    modules = loaded("--help")
    assert not modules & (HEAVY | {"apsw", "tailrace.home", "tailrace.cli.topic.append", "tailrace.cli.queue.workers"})
    assert not {name for name in loaded("--version") if name.startswith("rich")}


def test_listing_the_topics_of_a_disk_loads_only_what_reads_their_heads(cli: Cli) -> None:
    cli("topic", "create", "orders")
    modules = loaded("topic", "list", "--home", cli.home)
    assert not modules & (HEAVY | {"tailrace.log.topic"})
    assert {"apsw", "tailrace.log.format.head"} <= modules


def test_the_outline_shows_the_same_help_as_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for outline in (False, True):
        with pytest.raises(SystemExit):
            build(outline=outline)(["--help"], prog_name="tailrace")
        shown.append(capsys.readouterr().out)
    assert "Topics, and the records in them." in shown[0]
    assert shown[0] == shown[1]


def test_what_asks_for_the_outline() -> None:
    for words in (["--help"], ["-h"], ["--version"], ["--home", "x", "--help"], ["--help", "topic"]):
        assert asks_for_outline(words)
    for words in ([], ["topic", "--help"], ["--home", "x", "run", "-h"], ["--home", "x"]):
        assert not asks_for_outline(words)
