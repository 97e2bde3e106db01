"""LeaseContract: the tests of leases and positions on a storage, where answers are lost and writes come late.

Subclass it in a test module and define one fixture, `store`, that yields an open `Store`:

    class TestLeasesOnMine(LeaseContract):
        @pytest.fixture
        def store(self):
            yield Store(MyTable(), MyObjects())

Tests may share the storage behind the store: each test uses its own names.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tailrace.coordination import guard, lease
from tailrace.coordination.lease import NOBODY, Beats, HeldLease, Lease, take
from tailrace.coordination.position import PositionMove, commit, commit_with
from tailrace.errors import Conflict, Fenced, TimedOut
from tailrace.storage.calls import Steps, Store, Write
from tailrace.storage.tables import Absent, Add, Item, Key, Put, Update
from tailrace.testing.clock import ManualClock

T = TypeVar("T")
TTL_SECONDS = 10.0
ANN, BOB = 11, 22


class FaultyStore:
    """Carries out steps, and leaves the writes with given numbers without an answer: "landed", "lost", or "late" (see
    `land`)."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.store = replace(store, clock=self.clock.monotonic, sleep=self.clock.move)
        self.late: list[Write] = []

    def run(self, steps: Steps[T], faults: Mapping[int, str] | None = None) -> T:
        """Carry out steps as `Store.run` does; `faults` has the fault of a write by its number, from 0."""
        faults, number, send, answer = faults or {}, 0, steps.send, None
        try:
            while True:
                call = send(answer)
                fault = faults.get(number) if isinstance(call, Write) else None
                number += isinstance(call, Write)
                try:
                    answer, send = self._answer(call, fault), steps.send
                except Exception as error:
                    answer, send = error, steps.throw
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _answer(self, call: Any, fault: str | None) -> Any:
        if fault is None:
            return self.store.answer(call)
        if fault == "landed":
            self.store.answer(call)
        elif fault == "late":
            self.late.append(call)
        raise TimedOut("the contract: no answer")

    def land(self) -> None:
        """Let the late requests arrive now; nobody gets their answers."""
        for call in self.late:
            try:
                self.store.answer(call)
            except Conflict:
                continue

    def item(self, key: Key) -> Item:
        """Return the stored item."""
        item = self.run(guard.read(key))
        assert item is not None
        return item


class LeaseContract:
    """The tests of leases and positions; subclass it with a fixture `store`, as the module's docstring shows."""

    @pytest.fixture
    def line(self, store: Store) -> FaultyStore:
        """Return the store under test, with faults on demand."""
        return FaultyStore(store)

    @pytest.fixture
    def shard(self, line: FaultyStore) -> Key:
        """Return the key of a lease with a position and without an owner."""
        key = Key(f"$Group-{uuid.uuid4().hex}", 3)
        line.run(guard.attempt(Put(key, {"owner": NOBODY, "epoch": 0, "position": 5}, (Absent(),))))
        return key

    @pytest.fixture
    def name(self) -> str:
        """Return a lease's name that no other test uses."""
        return uuid.uuid4().hex

    def taken(self, line: FaultyStore, key: Key, me: int) -> HeldLease:
        """Take the lease as it is stored, from any owner."""
        got = line.run(take(key, me, line.item(key)))
        assert got is not None
        return got[0]

    # -- taking
    def test_a_free_lease_is_taken(self, line: FaultyStore, shard: Key) -> None:
        got = line.run(take(shard, ANN, line.item(shard)))
        assert got is not None
        assert got[0] == HeldLease(shard, ANN, 1)
        assert (got[1]["owner"], got[1]["epoch"], got[1]["position"]) == (ANN, 1, 5)

    def test_of_two_who_saw_the_same_one_gets_it(self, line: FaultyStore, shard: Key) -> None:
        seen = line.item(shard)
        assert line.run(take(shard, ANN, seen)) is not None
        assert line.run(take(shard, BOB, seen)) is None
        assert line.item(shard)["owner"] == ANN

    def test_a_lease_given_back_and_taken_meanwhile_is_not_taken_as_seen(self, line: FaultyStore, shard: Key) -> None:
        seen = line.item(shard)
        line.run(lease.release(self.taken(line, shard, ANN)))
        assert line.run(take(shard, BOB, seen)) is None

    def test_a_take_without_an_answer_can_be_taken_again(self, line: FaultyStore, shard: Key) -> None:
        assert line.run(take(shard, ANN, line.item(shard)), {0: "landed"}) is None
        item = line.item(shard)
        assert lease.takable(item, ANN, gone=False)
        assert not lease.takable(item, BOB, gone=False)
        assert line.run(take(shard, ANN, item)) == (HeldLease(shard, ANN, 2), line.item(shard))

    def test_a_take_that_comes_late_takes_nothing(self, line: FaultyStore, shard: Key) -> None:
        line.run(take(shard, ANN, line.item(shard)), {0: "late"})
        held = self.taken(line, shard, BOB)
        line.land()
        assert held.stands(line.item(shard))

    # -- giving back
    def test_release_makes_it_free_and_the_next_epoch_is_higher(self, line: FaultyStore, shard: Key) -> None:
        assert line.run(lease.release(self.taken(line, shard, ANN)))
        assert line.item(shard)["owner"] == NOBODY
        assert self.taken(line, shard, BOB).epoch == 2

    @pytest.mark.parametrize("fault", ["landed", "lost", "late"])
    def test_a_release_without_an_answer(self, line: FaultyStore, shard: Key, fault: str) -> None:
        held = self.taken(line, shard, ANN)
        assert line.run(lease.release(held), {0: fault})
        again = self.taken(line, shard, ANN)
        line.land()
        assert again.stands(line.item(shard))

    def test_who_is_not_the_holder_cannot_release(self, line: FaultyStore, shard: Key) -> None:
        past = self.taken(line, shard, ANN)
        now = self.taken(line, shard, BOB)
        assert not line.run(lease.release(past))
        assert not line.run(lease.release(HeldLease(shard, ANN, now.epoch)))
        assert not line.run(lease.release(HeldLease(shard, BOB, past.epoch)))
        assert now.stands(line.item(shard))

    # -- positions
    def test_the_holder_moves_the_position(self, line: FaultyStore, shard: Key) -> None:
        assert line.run(commit([PositionMove(self.taken(line, shard, ANN), 5, 9)])) == {}
        assert line.item(shard)["position"] == 9

    def test_a_past_owner_moves_nothing(self, line: FaultyStore, shard: Key) -> None:
        past = self.taken(line, shard, ANN)
        self.taken(line, shard, BOB)
        assert line.run(commit([PositionMove(past, 5, 9)])).keys() == {shard}
        with pytest.raises(Fenced):
            line.run(commit_with(PositionMove(past, 5, 9), []))
        assert line.item(shard)["position"] == 5

    def test_the_same_owner_under_an_older_epoch_moves_nothing(self, line: FaultyStore, shard: Key) -> None:
        past = self.taken(line, shard, ANN)
        self.taken(line, shard, ANN)
        assert line.run(commit([PositionMove(past, 5, 9)])).keys() == {shard}
        assert line.item(shard)["position"] == 5

    def test_who_has_given_it_back_moves_nothing(self, line: FaultyStore, shard: Key) -> None:
        held = self.taken(line, shard, ANN)
        line.run(lease.release(held))
        assert line.run(commit([PositionMove(held, 5, 9)])).keys() == {shard}
        assert line.item(shard)["position"] == 5

    @pytest.mark.parametrize("fault", ["landed", "lost", "late"])
    def test_a_commit_without_an_answer_is_compared(self, line: FaultyStore, shard: Key, fault: str) -> None:
        held = self.taken(line, shard, ANN)
        assert line.run(commit([PositionMove(held, 5, 9)]), {0: fault}) == {}
        assert line.item(shard)["position"] == 9
        line.run(commit([PositionMove(held, 9, 12)]))
        line.land()
        assert line.item(shard)["position"] == 12

    def test_an_earlier_commit_that_landed_after_all_is_gone_on_from(self, line: FaultyStore, shard: Key) -> None:
        held = self.taken(line, shard, ANN)
        with pytest.raises(TimedOut):
            line.run(commit([PositionMove(held, 5, 7)], patience=0), {0: "late"})
        line.land()
        assert line.run(commit([PositionMove(held, 5, 9)])) == {}
        assert line.item(shard)["position"] == 9

    def test_a_position_never_goes_back(self, line: FaultyStore, shard: Key) -> None:
        held = self.taken(line, shard, ANN)
        line.run(commit([PositionMove(held, 5, 9)]))
        assert line.run(commit([PositionMove(held, 5, 7)])) == {}
        assert line.item(shard)["position"] == 9

    def test_one_of_several_is_fenced_and_the_others_are_committed(self, line: FaultyStore, shard: Key) -> None:
        other = Key(shard.p, 4)
        line.run(guard.attempt(Put(other, {"owner": NOBODY, "epoch": 0, "position": 0}, (Absent(),))))
        moves = [PositionMove(self.taken(line, shard, ANN), 5, 6), PositionMove(self.taken(line, other, ANN), 0, 1)]
        self.taken(line, shard, BOB)
        assert line.run(commit(moves), {1: "landed"}).keys() == {shard}
        assert (line.item(shard)["position"], line.item(other)["position"]) == (5, 1)

    @pytest.mark.parametrize("fault", ["landed", "lost", "late"])
    def test_what_goes_with_a_commit_happens_once(self, line: FaultyStore, shard: Key, fault: str) -> None:
        effect = Key(shard.p, 99)
        line.run(guard.attempt(Put(effect, {"n": 0}, (Absent(),))))
        line.run(
            commit_with(PositionMove(self.taken(line, shard, ANN), 5, 6), [Update(effect, (Add("n", 1),))]), {0: fault}
        )
        line.land()
        assert (line.item(shard)["position"], line.item(effect)["n"]) == (6, 1)

    def test_a_refused_companion_refuses_the_commit(self, line: FaultyStore, shard: Key) -> None:
        with pytest.raises(Conflict) as caught:
            line.run(
                commit_with(
                    PositionMove(self.taken(line, shard, ANN), 5, 6), [Update(Key(shard.p, 99), (Add("n", 1),))]
                )
            )
        assert caught.value.index == 0
        assert line.item(shard)["position"] == 5

    # -- one owner at a time
    def test_a_held_lease_is_busy_which_is_an_answer(self, line: FaultyStore, name: str) -> None:
        beats = Beats(TTL_SECONDS)
        assert line.run(lease.acquire(name, ANN, beats, {})) == HeldLease(lease.lease_key(name), ANN, 1)
        assert line.run(lease.acquire(name, BOB, Beats(TTL_SECONDS), {})) is None

    def test_a_silent_holder_is_relieved_after_ttl_and_not_before(self, line: FaultyStore, name: str) -> None:
        line.run(lease.acquire(name, ANN, Beats(TTL_SECONDS), {}))
        beats = Beats(TTL_SECONDS)
        for _ in range(3):
            assert line.run(lease.acquire(name, BOB, beats, {})) is None
            line.clock.move(TTL_SECONDS / 3 - 0.01)
        line.clock.move(0.1)
        assert line.run(lease.acquire(name, BOB, beats, {})) == HeldLease(lease.lease_key(name), BOB, 2)

    def test_a_holder_that_beats_is_left_alone(self, line: FaultyStore, name: str) -> None:
        held = line.run(lease.acquire(name, ANN, Beats(TTL_SECONDS), {}))
        assert held is not None
        beats = Beats(TTL_SECONDS)
        for _ in range(8):
            assert line.run(lease.acquire(name, BOB, beats, {})) is None
            assert line.run(lease.beat(held, {}))
            line.clock.move(TTL_SECONDS / 2)

    def test_a_past_holder_learns_so_from_its_beat(self, line: FaultyStore, name: str) -> None:
        held, beats = line.run(lease.acquire(name, ANN, Beats(TTL_SECONDS), {})), Beats(TTL_SECONDS)
        assert held is not None
        line.run(lease.acquire(name, BOB, beats, {}))
        line.clock.move(TTL_SECONDS)
        assert line.run(lease.acquire(name, BOB, beats, {})) is not None
        assert not line.run(lease.beat(held, {}))

    @pytest.mark.parametrize("fault", ["landed", "lost", "late"])
    def test_acquiring_without_an_answer_is_settled_at_once(self, line: FaultyStore, name: str, fault: str) -> None:
        held = line.run(lease.acquire(name, ANN, Beats(TTL_SECONDS), {}), {1: fault})
        line.land()
        assert held is not None
        assert held.stands(line.item(held.key))

    def test_a_write_with_a_check_is_fenced(self, line: FaultyStore, name: str) -> None:
        target = Key(f"target-{name}")
        with Lease(line.store, name, ttl=TTL_SECONDS) as first:
            assert first.acquire()
            check = first.check()
            line.run(guard.attempt(Put(target, {"n": 1}, (Absent(),)), check))
            line.run(take(lease.lease_key(name), BOB, line.item(lease.lease_key(name))))
            refused = line.run(guard.attempt(Update(target, (Add("n", 1),)), check))
        assert isinstance(refused, guard.Refused)
        assert line.item(target)["n"] == 1

    def test_many_want_it_and_one_at_a_time_has_it(self, store: Store, name: str) -> None:
        inside, most, turns = 0, 0, []
        lock = threading.Lock()

        def work(n: int) -> None:
            nonlocal inside, most
            with Lease(store, name, ttl=0.5) as mine:
                assert mine.acquire(wait=60)
                with lock:
                    inside += 1
                    most = max(most, inside)
                turns.append(mine.epoch)
                with lock:
                    inside -= 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1
        assert turns == sorted(set(turns))
        assert len(turns) == 4
