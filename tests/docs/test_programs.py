"""Each example program prints what its docstring says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").glob("*.py") if not path.name.startswith(("demo_", "__"))
)


def promised(program: Path) -> str:
    """The last indented part of the program's docstring: what it prints."""
    text = ast.get_docstring(ast.parse(program.read_text())) or ""
    return dedent(text.rpartition("\n\n")[2])


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.spark] if p.stem.startswith("pipeline") else []) for p in EXAMPLES],
)
def test_an_example_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, program, str(tmp_path / "home")], capture_output=True, text=True, timeout=200, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == promised(program)


def test_there_is_one_for_each_way_of_use() -> None:
    assert {path.stem.partition("_")[0] for path in EXAMPLES} == {
        "log",
        "events",
        "feed",
        "queue",
        "stream",
        "pipeline",
    }
