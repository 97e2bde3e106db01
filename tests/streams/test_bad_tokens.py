"""Tokens that cannot be right: of another table, damaged, or from a time that this table has not seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import BadToken, PositionLost
from tailrace.streams import hash_key, model


@model(stream={"new"})
class Ann:
    id: int = hash_key()


@model(stream={"new"})
class Bob:
    id: int = hash_key()


def test_a_token_of_a_later_life_than_the_restored_table(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Ann)
        engine.save(Ann(1))
    shutil.copytree(tmp_path / "home", tmp_path / "backup")
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Ann)
        engine.save(Ann(2))
        token = engine.stream(Ann, "latest").token
    with tailrace.open(tmp_path / "backup") as home:
        engine = home.engine()
        engine.bind(Ann)
        with pytest.raises(PositionLost, match=r"beyond the end.*restored from a backup"):
            next(engine.stream(Ann, token))


def test_a_token_from_the_future_whose_age_nothing_tells(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Ann)
        token = engine.stream(Ann, "trim_horizon").token
        assert next(engine.stream(Ann, token)) is None
        with pytest.raises(BadToken, match="60 minutes from now"):
            engine.stream(Ann, {**token, "at": token["at"] + 3605})
        engine.save(Ann(1))
        stream = engine.stream(Ann, token)
        assert next(stream) is not None
        later = {**stream.token, "at": stream.token["at"] + 3605}
        assert next(engine.stream(Ann, later)) is None, "a sequence number is exact, whatever the clock said"


def test_another_tables_token_and_damaged_ones(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Ann, Bob)
        token = engine.stream(Ann, "latest").token
        with pytest.raises(BadToken, match="of the table 'Ann', not of 'Bob'"):
            engine.stream(Bob, token)
        for name in token:
            if name != "version":
                with pytest.raises(BadToken):
                    engine.stream(Ann, {k: v for k, v in token.items() if k != name})
        for wrong in ({"shards": "x"}, {"shards": [{}]}, {"version": 2}, {"more": 1}, {"shards": token["shards"] * 2}):
            with pytest.raises(BadToken):
                engine.stream(Ann, {**token, **wrong})
