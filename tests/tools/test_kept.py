"""What takes long to make is made once, whole, however many processes ask for it at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers.kept import kept


def test_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        path.mkdir()
        time.sleep(0.05)
        (path / "file").write_text("whole")
        made.append(path)

    def ask(_: int) -> str:
        return (kept(tmp_path / "place" / "libs", make) / "file").read_text()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"whole"}
    assert len(made) == 1


def test_what_could_not_be_made_is_made_by_the_next(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError):
        kept(tmp_path / "a", fail)
    assert not (tmp_path / "a").exists()
    assert kept(tmp_path / "a", lambda path: path.write_text("whole")).read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.lock"]
