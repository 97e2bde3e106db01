"""`make demo`: from an empty machine to source = sink, through a kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.server]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for its temporary ones; the user that PostgreSQL runs as must get through."""
    with tempfile.TemporaryDirectory(prefix="tailrace-test-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.mark.timeout(600)
def test_the_demonstration(place: Path) -> None:
    env = {**os.environ, "TMPDIR": str(place), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "examples.demo_shop", "1"]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=580)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert said.count("✓ the same") == 3, said
    assert said.index("kill -9") < said.index("✓ the same")
    assert "tailrace init postgres file" in said
    assert "not-a-secret" not in said, "a password"
    assert "Traceback" not in said
    assert not list(place.glob("tailrace-demo-*")), "it cleans up after itself"
    assert not list(place.glob("tailrace-server-*"))
