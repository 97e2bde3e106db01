"""Tips: sizes, calving, conditions, checksums; the document's numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import BadSetting, Damaged, TooLarge
from tailrace.events.event import Event
from tailrace.events.tip import TIP, NewEvents, Tip, TipLimits, plan, trim
from tailrace.storage.evaluation import changed, holds
from tailrace.storage.tables import Absent, Equals, Item, Key, Put, Update

NAME = "Cart-1"


def batch(count: int, unfolds: int = 0, data: bytes = b"", type: str = "StuffHappened") -> NewEvents:
    numbers = iter(range(10**6))
    return NewEvents.of(
        [Event(type, data)] * count, [Event("Snap", data)] * unfolds, "none", "T", lambda: f"{next(numbers)}"
    )


class Kept:
    """Items written by plans, as a table would hold them."""

    def __init__(self, limits: TipLimits | None = None) -> None:
        self.items: dict[Key, Item] = {}
        self.limits, self.writes = limits or TipLimits(), 0

    @property
    def tip(self) -> Tip:
        return Tip.of(NAME, self.items.get(Key(NAME, TIP)))

    def append(self, count: int, unfolds: int = 0, **more: Any) -> Tip:
        self.writes += 1
        actions, after = plan(self.tip, batch(count, unfolds, **more), self.limits, f"etag{self.writes}")
        return self.write(actions, after)

    def write(self, actions: Any, after: Tip | None = None) -> Tip:
        for action in actions:
            old = self.items.get(action.key)
            assert holds(old, action.when)
            new = changed(old, action)
            assert new is not None
            self.items[action.key] = new
        if after is not None:
            stored = self.tip
            assert (stored.version, stored.etag, stored.calved_bytes, stored.checksum) == (
                after.version,
                after.etag,
                after.calved_bytes,
                after.checksum,
            )
            assert ([*stored.stored_events], [*stored.types], [*stored.stored_unfolds]) == (
                [*after.stored_events],
                [*after.types],
                [*after.stored_unfolds],
            )
            assert stored.bytes == after.bytes
        return self.tip

    @property
    def shape(self) -> dict[int, tuple[int, int]]:
        return {key.i: (len(item["e"]), item["n"]) for key, item in self.items.items()}


def test_an_event_without_a_body_counts_53() -> None:
    assert batch(1).bytes == 53
    assert batch(1, data=b"12345").bytes == 58
    whole = NewEvents.of([Event("A", b"dd", b"m", "id", "xxx", "yyyy")], [Event("Uu", b"ddd", b"m")], "none", "T", str)
    assert (whole.bytes, whole.unfold_bytes) == (1 + 2 + 1 + 3 + 4 + 40, 2 + 3 + 1 + 50)


def test_ten_calved_make_b_530() -> None:
    kept = Kept(TipLimits(max_events=10))
    kept.append(9)
    kept.append(1)
    assert kept.shape == {TIP: (10, 10)}
    tip = kept.append(1)
    assert kept.shape == {0: (10, 10), TIP: (1, 11)}
    assert (tip.calved_bytes, kept.items[Key(NAME, TIP)]["a"]) == (530, 1)


def test_a_batch_is_not_split() -> None:
    kept = Kept(TipLimits(max_events=3))
    kept.append(11)
    assert kept.shape == {TIP: (11, 11)}
    kept.append(11)
    assert kept.shape == {0: (11, 11), TIP: (11, 22)}
    assert kept.items[Key(NAME, TIP)]["a"] == 11


def test_three_appends_of_three() -> None:
    kept = Kept(TipLimits(max_events=3))
    for _ in range(3):
        kept.append(3)
    assert kept.shape == {0: (3, 3), 3: (3, 6), TIP: (3, 9)}
    assert {*kept.items[Key(NAME, 3)]} == {"p", "i", "e", "c", "n", "k"}


@pytest.mark.parametrize(("limit", "calves"), [(106, False), (105, True)])
def test_calving_by_bytes_is_strict(limit: int, calves: bool) -> None:
    for limits in TipLimits(max_event_bytes=limit), TipLimits(max_bytes=limit):
        kept = Kept(limits)
        kept.append(1)
        kept.append(1)
        assert (0 in kept.shape) is calves


@pytest.mark.parametrize(("limit", "calves"), [(106 + 54, False), (106 + 53, True)])
def test_unfolds_count_for_max_bytes_alone(limit: int, calves: bool) -> None:
    for limits, expected in (TipLimits(max_bytes=limit), calves), (TipLimits(max_event_bytes=limit), False):
        kept = Kept(limits)
        kept.append(1)
        kept.append(1, 1)
        assert (0 in kept.shape) is expected


def test_unfolds_alone_never_calve() -> None:
    kept = Kept(TipLimits(max_bytes=60))
    kept.append(1)
    tip = kept.append(0, 5)
    assert (kept.shape, len(tip.stored_unfolds)) == ({TIP: (1, 1)}, 5)
    assert kept.items[Key(NAME, TIP)]["a"] == 0


def test_unfolds_are_replaced_and_have_the_version_after() -> None:
    kept = Kept()
    assert [u["i"] for u in kept.append(3, 2).stored_unfolds] == [3, 3]
    assert [u["i"] for u in kept.append(1, 1).stored_unfolds] == [4]
    assert kept.append(1).stored_unfolds == []


def test_the_first_write_needs_absence_and_the_rest_n_and_etag() -> None:
    (first,), tip = plan(Tip(NAME), batch(0, 1), TipLimits(), "one")
    assert isinstance(first, Put)
    assert first.when == (Absent(),)
    (second,), _ = plan(tip, batch(1), TipLimits(), "two")
    assert isinstance(second, Update)
    assert second.when == (Equals("n", 0), Equals("etag", "one"))


def test_a_tip_that_has_no_etag_is_guarded_all_the_same() -> None:
    item = {"p": NAME, "i": TIP, "n": 1, "e": [{"t": "T"}], "c": ["A"], "u": [], "a": 1}
    (action,), after = plan(Tip.of(NAME, item), batch(1), TipLimits(), "new")
    assert action.when == (Equals("n", 1), Absent("etag"))
    assert after.checksum is None


def test_what_cannot_be_one_item_is_refused_with_its_size() -> None:
    kept = Kept()
    kept.append(1)
    with pytest.raises(TooLarge, match=r"an item of 4\d\d,\d\d\d bytes"):
        kept.append(1, data=b"x" * 409_600)
    with pytest.raises(TooLarge, match="Cart-1"):
        kept.append(0, 1, data=b"x" * 409_600)
    kept.append(1, data=b"x" * 400_000)


def test_what_does_not_fit_with_the_old_calves_whatever_the_limits() -> None:
    kept = Kept(TipLimits(max_event_bytes=10**7, max_bytes=10**7))
    kept.append(1, data=b"x" * 300_000)
    kept.append(1, data=b"x" * 300_000)
    assert kept.shape == {0: (1, 1), TIP: (1, 2)}


def test_long_ids_are_counted() -> None:
    ids = iter(range(10**6))
    many = NewEvents.of([Event("A", id=f"{next(ids):0128}") for _ in range(2400)], [], "none", "T" * 32, str)
    with pytest.raises(TooLarge):
        plan(Tip(NAME), many, TipLimits(max_event_bytes=10**7), "e")


def test_trim_takes_the_leading_events() -> None:
    kept = Kept()
    kept.append(3, 1)
    tip = kept.write(trim(kept.tip, 1, "new"))
    assert (tip.version, tip.first, tip.floor, tip.etag, len(tip.stored_unfolds)) == (3, 2, 2, "new", 1)
    assert kept.items[Key(NAME, TIP)]["a"] == 0
    tip = kept.write(trim(kept.tip, 2, "newer"))
    assert (tip.version, tip.first, len(tip.stored_events)) == (3, 3, 0)
    assert kept.append(1).first == 3


@pytest.mark.parametrize(
    "change",
    [
        {"n": 5}, {"n": -1}, {"n": "x"}, {"e": []}, {"c": []}, {"c": ["B", "A"]}, {"p": "Cart-2"}, {"i": 3}, {"k": 1},
        {"floor": 1}, {"floor": "x"}, {"u": [{"i": 2}]}, {"u": [{"i": 2, "c": "S", "t": "T", "k": 1}]},
    ],
)  # fmt: skip
def test_a_tip_that_is_not_what_was_written_is_damage(change: dict[str, Any]) -> None:
    kept = Kept()
    kept.append(2, 1)
    with pytest.raises(Damaged, match="Cart-1"):
        Tip.of(NAME, {**kept.items[Key(NAME, TIP)], **change})


@pytest.mark.parametrize("name", ["e", "c", "u", "n"])
def test_a_tip_without_one_of_its_attributes_is_damage(name: str) -> None:
    kept = Kept()
    kept.append(2, 1)
    item = {k: v for k, v in kept.items[Key(NAME, TIP)].items() if k != name}
    with pytest.raises(Damaged, match="Cart-1"):
        Tip.of(NAME, item)


@pytest.mark.parametrize("limits", [{"max_events": 0}, {"max_bytes": "1"}, {"max_event_bytes": True}])
def test_limits_are_numbers_from_one(limits: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        TipLimits(**limits)
