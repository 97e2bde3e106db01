"""The README of deploy/aws: the commands that it names are there, and it costs what its script says.  And no page has
what a merge left."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.cli.test_main import commands
from tests.servers.environment import ROOT

README = ROOT / "deploy" / "aws" / "README.md"


def test_the_commands_that_it_names_are_there() -> None:
    there = [way for way, _ in commands()]
    named = [words.split() for words in re.findall(r"(?:`|\$ )tailrace ([a-z ]+)", README.read_text())]
    assert len(named) > 3
    for words in named:
        assert any(tuple(words[: len(way)]) == way for way in there), f"there is no tailrace {' '.join(words)}"


def test_the_costs_are_those_that_the_script_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(README.parent)
    cost = importlib.import_module("cost")
    monkeypatch.setattr(cost, "RATES", cost.RATES[:2])  # the third takes ten times as long
    cost.main()
    told = capsys.readouterr().out
    page = README.read_text()
    table = [line for line in told.splitlines() if line.startswith("| ")]
    assert len(table) == 7
    for line in table:
        assert f"\n{line.removesuffix('|').rstrip()} | " in page, line
    assert f"**Idle: {cost.ALARMS * cost.ALARM_MONTH:.2f}**" in page


def test_nothing_is_left_of_a_merge() -> None:
    pages = [*ROOT.glob("*.md"), *(page for folder in ("deploy", "docs") for page in (ROOT / folder).rglob("*.md"))]
    assert README in pages
    for page in pages:
        assert not re.search(r"^(<{7}|>{7}) ", page.read_text(), re.MULTILINE), page
