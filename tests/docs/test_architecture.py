"""The architecture page: its list of files is what the files say, and the doors of packages name their files."""

from __future__ import annotations

import ast
import re

from tests.docs.test_examples import ROOT
from tools import file_list


def test_the_list_of_files_is_what_they_say() -> None:
    assert file_list.main(["--check"]) == 0, "run python tools/file_list.py"


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        path
        for path in file_list.SOURCE.rglob("*.py")
        if path.name != "_version.py" and not file_list.first_sentence(path)
    ]
    assert not silent


def test_files_that_the_walks_name_are_there() -> None:
    walks = (ROOT / "docs" / "architecture.md").read_text().partition(file_list.HEADING)[0]
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", walks)
    assert len(named) > 30
    assert not [name for name in named if not (file_list.SOURCE / name).exists()]


def test_doors_name_each_file_in_their_reading_order() -> None:
    wrong = {}
    for package in file_list.packages(file_list.SOURCE)[1:]:
        inside = {path.stem for path in package.glob("*.py")} - {"__init__"}
        inside_too = {path.parent.name for path in package.glob("*/__init__.py")}
        door = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        order = re.search(r"Read in this order: ([a-z0-9_,;\s]+)\.", door)
        named = set(re.findall(r"\w+", order[1])) if order else set()
        if inside - named or named - inside - inside_too:
            wrong[package.relative_to(file_list.SOURCE).as_posix()] = (inside - named, named - inside - inside_too)
    assert not wrong
