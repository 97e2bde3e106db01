"""Random schedules of a stream and its reader; and that each rule, taken away, is missed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.storage.changes import Change
from tailrace.streams import stream as streams
from tailrace.streams.active_shards import ActiveShards
from tailrace.streams.lineage import Lineage
from tailrace.streams.shard import ShardReader
from tailrace.streams.stream import Stream
from tailrace.streams.token import ShardPlace
from tests.streams.reading import life_of_days, schedule

SEEDS = 200


def test_random_lives() -> None:
    for seed in range(SEEDS):
        try:
            schedule(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.soak
def test_many_random_lives() -> None:
    first = int(os.environ.get("TAILRACE_SEED", "10000"))
    for seed in range(first, first + int(os.environ.get("TAILRACE_SCHEDULES", "20000"))):
        try:
            schedule(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("many", [SEEDS, pytest.param(20_000, marks=pytest.mark.soak)])
def test_lives_of_days_lose_nothing_in_silence(many: int) -> None:
    first = int(os.environ.get("TAILRACE_SEED", "0"))
    told = 0
    for seed in range(first, first + many):
        try:
            told += life_of_days(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert 0 < told < many


Patch = Callable[[pytest.MonkeyPatch], None]


def _patched(owner: Any, name: str, value: Any) -> Patch:
    return lambda patch: patch.setattr(owner, name, value)


def _place_of_buffer(self: ShardReader) -> ShardPlace:
    """A token that moves over what was only fetched."""
    after = self.buffer[-1].sequence if self.buffer else self.after
    return ShardPlace(self.shard, self.parent, after, self.since, self.latest)


def _forget_ended(self: Stream[Any]) -> Any:
    """A token without the shards that ended, whose children are not known yet."""
    token = _token(self)
    token["shards"] = [p for p in token["shards"] if not self._active.readers[p["shard"]].ended]
    return token


def _at_latest_children(self: ShardReader) -> str:
    start: Any = "AFTER_SEQUENCE_NUMBER" if self.after is not None else "LATEST"
    return self._ask(lambda: self._changes.iterator(self.shard, start, self.after))  # type: ignore[no-any-return]


def _sorted_page(self: ShardReader, changes: Any) -> None:
    _keep(self, sorted(changes, key=lambda change: change.created_at))


def _resume_without_ancestors(self: Lineage, places: Any) -> Any:
    kept = _resume(self, places)
    self.finished = set()
    return kept


def _exhausted_drops_page(self: ShardReader, limit: int) -> None:
    _read(self, limit)
    if self.exhausted:
        self.buffer.clear()


def _take_or_nothing(self: ActiveShards, most: int) -> list[Change]:
    """A batch that an error cuts off is thrown away."""
    taken: list[Change] = []
    while len(taken) < most and (reader := self.first()) is not None:
        taken.append(reader.buffer[0])
        self.take_first(reader)
    return taken


_token = Stream.token.fget  # type: ignore[attr-defined]
_keep, _read, _resume = ShardReader._keep, ShardReader._read, Lineage.resume

MUTANTS: dict[str, Patch] = {
    "children beside their parents": _patched(Lineage, "_parent_is_done", lambda self, shard, active: True),
    "a token over what was only fetched": _patched(ShardReader, "place", property(_place_of_buffer)),
    "a token without ended shards": _patched(Stream, "token", property(_forget_ended)),
    "children from latest": _patched(ShardReader, "_make_iterator", _at_latest_children),
    "a page sorted by time": _patched(ShardReader, "_keep", _sorted_page),
    "ancestors read again": _patched(Lineage, "resume", _resume_without_ancestors),
    "the last page of a closed shard dropped": _patched(ShardReader, "_read", _exhausted_drops_page),
    "batches that are cut off thrown away": _patched(ActiveShards, "take", _take_or_nothing),
    "new shards never begun": _patched(ActiveShards, "begin_ready", lambda self, *_, **__: None),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_missed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            schedule(seed)


def _token_of_now(self: Stream[Any]) -> Any:
    return _token(self) | {"at": int(self._changes.time())}


def _note_only(self: ShardReader) -> None:
    self.asked = self._changes.time()


MUTANTS_OF_DAYS: dict[str, Patch] = {
    "shards that are gone never matter": _patched(ShardReader, "_check_age", lambda self, error: None),
    "shards of which nothing was read never matter": _patched(ShardReader, "_note_answer", _note_only),
    "the age of a token never matters": _patched(streams, "check_age", lambda *_: None),
    "a token is as old as the call that makes it": _patched(Stream, "token", property(_token_of_now)),
}


@pytest.mark.parametrize("mutant", MUTANTS_OF_DAYS)
def test_each_rule_of_days_is_missed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS_OF_DAYS[mutant](monkeypatch)
    with pytest.raises(AssertionError, match="lost in silence"):
        for seed in range(5 * SEEDS):
            life_of_days(seed)
