"""docs/operations/guarantees.md: every promise of the README is there, and each test that shows one exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "guarantees.md").read_text()
README = (ROOT / "README.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The cells of the first table, without its head."""
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def shown_by() -> dict[str, list[str]]:
    return {promise: re.findall(r"`(\S+\.py::\w+)`", tests) for promise, tests in rows(PAGE)}


def test_every_promise_is_shown() -> None:
    promised = [row[0] for row in rows(README.partition("## What is guaranteed")[2])]
    assert list(shown_by()) == promised


@pytest.mark.parametrize("promise", shown_by())
def test_what_shows_it_is_run_by_make_test(promise: str) -> None:
    tests = shown_by()[promise]
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
        assert found, test
        assert "pytest.mark.soak" not in [ast.unparse(mark) for mark in found[0].decorator_list], test
