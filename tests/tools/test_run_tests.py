"""`make test`: a test that fails once fails it, unless it is one of real processes and passes when it is run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = {
    "passes": "def test_a(): pass",
    "fails": "def test_a(): assert 0",
    "fails_once": "def test_a(): assert seen()",
    "late": "@pytest.mark.processes\ndef test_a(): assert seen()",
    "dead": "@pytest.mark.processes\ndef test_a(): assert 0",
}
SEEN = """
import pathlib, pytest

def seen():
    mark = pathlib.Path(__file__).with_suffix(".seen")
    there = mark.exists()
    mark.touch()
    return there

"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("passes", 0, ""),
        ("fails", 1, "1 TEST(S) FAILED"),
        ("fails_once", 1, "1 TEST(S) FAILED.  One that fails once is a defect"),
        ("late", 0, "1 TEST(S) OF REAL PROCESSES PASSED ONLY WHEN RUN AGAIN"),
        ("dead", 1, "1 TEST(S) FAILED"),
    ],
)
def test_what_make_test_says(tmp_path: Path, name: str, code: int, said: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    soak: x\n    processes: x\n")
    (tmp_path / f"test_{name}.py").write_text(SEEN + TESTS[name] + "\n")
    run = [sys.executable, str(ROOT / "tools" / "run_tests.py"), "-q", f"test_{name}.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert bool(said) == (f"test_{name}.py::test_a" in done.stdout.split("!" * 100)[-1])
