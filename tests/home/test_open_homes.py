"""A process opens each home once, and keeps only some open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.home import open_homes
from tailrace.home.open_homes import MAX_OPEN_HOMES, is_open, open_once


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(open_homes, "_open", {})
    yield
    for home in open_homes._open.values():
        home.close()


def test_a_home_is_opened_once(tmp_path: Path) -> None:
    url = str(tmp_path / "home")
    assert not is_open(url)
    home = open_once(url)
    assert is_open(url)
    assert open_once(url) is home


def test_the_home_used_longest_ago_is_let_go(tmp_path: Path) -> None:
    urls = [str(tmp_path / f"home-{n}") for n in range(MAX_OPEN_HOMES + 1)]
    for url in urls[:-1]:
        open_once(url)
    open_once(urls[0])
    open_once(urls[-1])
    assert [is_open(url) for url in urls] == [True, False, *[True] * (MAX_OPEN_HOMES - 1)]


def test_a_forked_process_opens_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "home")
    home = open_once(url)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_once(url) is not home
