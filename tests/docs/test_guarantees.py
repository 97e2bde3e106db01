"""docs/operations/guarantees.md: every promise of the README and every limit is there, with tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "guarantees.md").read_text()
PROMISES, _, SHOWN_LIMITS = PAGE.partition("## What shows the limits")
README = (ROOT / "README.md").read_text()
LIMITS = (ROOT / "docs" / "operations" / "limits.md").read_text()
CONTRACT = "../src/tailrace/testing/"


def rows(text: str) -> list[list[str]]:
    """The cells of the tables, without their heads."""
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.splitlines()[2:]
    ]


def shown_by(text: str = PAGE) -> dict[str, list[str]]:
    return {what: re.findall(r"`(\S+\.py::\w+)`", tests) for what, tests in rows(text) if "not shown" not in tests}


def test_every_promise_is_shown() -> None:
    promised = [row[0] for row in rows(README.partition("## What is guaranteed")[2].partition("\n## ")[0])]
    assert list(shown_by(PROMISES)) == promised


def test_every_limit_is_shown_or_said_not_to_be() -> None:
    assert [row[0] for row in rows(SHOWN_LIMITS)] == [row[0] for row in rows(LIMITS)]


@pytest.mark.parametrize("promise", shown_by())
def test_what_shows_it_is_run_by_make_test(promise: str) -> None:
    tests = shown_by()[promise]
    assert tests
    for test in tests:
        file, _, name = test.replace("contract/", CONTRACT).partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
        assert found, test
        assert "pytest.mark.soak" not in [ast.unparse(mark) for mark in found[0].decorator_list], test
