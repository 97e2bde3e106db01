"""The command line as a fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runs import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line on a home that is not there yet."""
    return Cli(tmp_path / "home")
