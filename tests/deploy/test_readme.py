"""The README of deploy/aws: the commands that it names are there.  And no page has what a merge left."""

from __future__ import annotations

import re

from tests.cli.test_main import commands
from tests.servers.environment import ROOT

README = ROOT / "deploy" / "aws" / "README.md"


def test_the_commands_that_it_names_are_there() -> None:
    there = [way for way, _ in commands()]
    named = [words.split() for words in re.findall(r"(?:`|\$ )tailrace ([a-z ]+)", README.read_text())]
    assert len(named) > 3
    for words in named:
        assert any(tuple(words[: len(way)]) == way for way in there), f"there is no tailrace {' '.join(words)}"


def test_nothing_is_left_of_a_merge() -> None:
    pages = [*ROOT.glob("*.md"), *(page for folder in ("deploy", "docs") for page in (ROOT / folder).rglob("*.md"))]
    assert README in pages
    for page in pages:
        assert not re.search(r"^(<{7}|>{7}) ", page.read_text(), re.MULTILINE), page
