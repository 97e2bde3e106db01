"""Guarded writes: what is repeated, what is never called lost, and how long one waits."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import in_force, rules, without
from tailrace.errors import BadInput, Conflict, Throttled, TimedOut, TooLarge, Unavailable
from tailrace.storage import calls
from tailrace.storage.calls import Get, Now, Pause, Write
from tailrace.storage.tables import Absent, Add, Check, Equals, Item, Key, Less, Put, Set, Update
from tests.log.driving import Driven, land, simulated

KEY = Key("p")
NEW = Put(KEY, {"n": 1}, (Absent(),))
MORE = Update(KEY, (Add("n", 1),))


# --- one attempt
def test_a_write_that_happened() -> None:
    store, _ = simulated()
    assert store.run(guard.attempt(NEW)) == Written(({"n": 1, "p": "p", "i": 0},))
    store, _ = simulated("objects")
    assert store.run(guard.attempt(NEW, Check(Key("q"), (Absent(),)))) == Written(None), "the table does not say"


def test_a_write_that_was_refused_shows_what_is_there() -> None:
    store, _ = simulated()
    store.run(guard.attempt(NEW))
    outcome = store.run(guard.attempt(Put(Key("q"), {}, (Absent(),)), NEW))
    assert outcome == Refused(1, {"n": 1, "p": "p", "i": 0})
    assert store.table.get(Key("q")) is None
    assert store.run(guard.attempt(Update(Key("q"), (Set("n", 1),)))) == Refused(0, None)


def test_a_missing_answer_is_not_repeated() -> None:
    store, _ = simulated()
    steps = Driven(store, guard.attempt(MORE))
    steps.lose()
    assert steps.result == Unanswered()


@pytest.mark.parametrize("refusal", [Throttled("later"), Unavailable("away")])
def test_what_certainly_did_not_happen_is_repeated_unchanged(refusal: Exception) -> None:
    store, _ = simulated()
    steps = Driven(store, guard.attempt(NEW))
    seen = []
    for _ in range(5):
        assert steps.call == Write((NEW,))
        steps.fail(refusal)
        assert isinstance(steps.call, Now)
        steps.step()
        assert isinstance(steps.call, Pause)
        seen.append(steps.call.attempt)
        steps.step()
    assert seen == [0, 1, 2, 3, 4], "longer each time"
    assert isinstance(steps.run(), Written)


@pytest.mark.parametrize("error", [BadInput("no"), TooLarge("no")])
def test_other_errors_are_the_callers(error: Exception) -> None:
    store, _ = simulated()
    steps = Driven(store, guard.attempt(NEW)).fail(error)
    assert steps.error is error


def test_patience_ends() -> None:
    store, clock = simulated()
    steps = Driven(store, guard.attempt(NEW, patience=5.0))
    while not steps.done:
        if isinstance(steps.call, Write):
            clock.move(1)
            steps.fail(Throttled("too many requests"))
        else:
            steps.step()
    assert isinstance(steps.error, Unavailable)
    assert "(too many requests)" in str(steps.error)
    assert "the same call can be made again" in str(steps.error)
    assert isinstance(steps.error.__cause__, Throttled)
    assert 5 <= clock.monotonic() < 15


# --- reading
def test_a_read_without_an_answer_is_asked_again() -> None:
    store, _ = simulated()
    store.run(guard.attempt(NEW))
    steps = Driven(store, guard.read(KEY))
    for error in (TimedOut("?"), Throttled("?"), Unavailable("?")):
        assert steps.call == Get(KEY)
        steps.fail(error).until(Get)
    assert steps.run()["n"] == 1


def test_everything_of_a_hash_page_by_page() -> None:
    store, _ = simulated()
    for i in range(30):
        store.table.write(Put(Key("big", i), {"d": b"x" * 100_000}, (Absent(),)))
    assert store.table.query("big").more is not None
    assert [item["i"] for item in store.run(guard.read_all("big"))] == list(range(30))
    assert [item["i"] for item in store.run(guard.read_all("big", 5, 7))] == [5, 6, 7]
    assert store.run(guard.read_all("none")) == []


# --- settling
def counting(to: int) -> Any:
    """A plan that counts an item up to a number, one by one."""

    def plan(item: Item | None) -> tuple[Any, ...] | None:
        if item is None:
            return (Put(KEY, {"n": 0}, (Absent(),)),)
        if item["n"] >= to:
            return None
        return (Update(KEY, (Set("n", item["n"] + 1),), (Equals("n", item["n"]),)),)

    return plan


def test_an_item_is_brought_to_where_it_should_be() -> None:
    store, _ = simulated()
    assert store.run(guard.settle(KEY, counting(3)))["n"] == 3
    before = store.table.calls["write"]
    assert store.run(guard.settle(KEY, counting(3)))["n"] == 3
    assert store.table.calls["write"] == before, "nothing is left to do"


def test_what_is_known_is_not_read() -> None:
    store, _ = simulated()
    steps = Driven(store, guard.settle(KEY, counting(0), None, known=True))
    assert isinstance(steps.call, Write)
    assert steps.run()["n"] == 0


def test_its_own_success_is_recognised() -> None:
    for landed in (False, True):
        store, _ = simulated()
        steps = Driven(store, guard.settle(KEY, counting(1)))
        while not steps.done:
            if isinstance(steps.call, Write) and len(steps.__dict__.setdefault("lost", [])) < 2:
                steps.lost.append(steps.call)  # type: ignore[attr-defined]
                if landed:
                    land(store, steps.call)
                steps.fail(TimedOut("sent, no answer"))
            else:
                steps.step()
        assert steps.run()["n"] == 1
        for sent in steps.lost:  # type: ignore[attr-defined]
            land(store, sent)
        assert store.table.get(KEY)["n"] == 1


def test_many_who_settle_the_same_item() -> None:
    store, _ = simulated()
    crowd = [Driven(store, guard.settle(KEY, counting(20))) for _ in range(5)]
    while not all(one.done for one in crowd):
        for one in crowd:
            if not one.done:
                one.step()
    assert {one.run()["n"] for one in crowd} == {20}


def test_a_plan_that_cannot_be_done_raises() -> None:
    store, _ = simulated()

    def plan(item: Item | None) -> None:
        raise Conflict("somebody else's")

    with pytest.raises(Conflict, match="somebody else's"):
        store.run(guard.settle(KEY, plan))


# --- rules
def test_rules_are_in_force_unless_a_test_takes_one_away() -> None:
    named = {"a": Equals("x", 1), "b": Less("y", 2)}
    assert rules(named) == (Equals("x", 1), Less("y", 2))
    with without("a"):
        assert rules(named) == (Less("y", 2),)
        assert not in_force("a")
        with without("b"):
            assert rules(named) == ()
        assert in_force("b")
    assert in_force("a")
    with pytest.raises(KeyError), without("a"):
        raise KeyError
    assert in_force("a")


def test_now_and_pause_are_calls() -> None:
    store, clock = simulated()
    clock.move(5)
    assert store.run(calls.now()) == 5
    store.run(calls.pause(3))
    assert 5 <= clock.monotonic() <= 5.08
