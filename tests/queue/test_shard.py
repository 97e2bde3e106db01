"""Shards: what a refused write of a window means."""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.coordination.lease import HeldLease
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.queue import replay
from tailrace.queue.shard import Planned, ReplayShard, Shard, write
from tailrace.storage.tables import Set, Update


def test_the_same_window_of_a_replay_by_the_next_owner_is_not_taken_for_ones_own(home: Home) -> None:
    """Else two consumers would hand the same messages out, and the past one from a shard that it has lost."""
    queue = home.queue("q", shards=1)
    queue.push_many(range(3))
    queue.replay(0)
    group, run = queue._group(), home.store.run
    ((key, item),) = run(replay.items(group.log.id)).items()
    owners = []
    for epoch in (1, 2):
        owner = Set("owner", epoch), Set("epoch", epoch)
        run(guard.attempt(Update(group.shard(0), owner)))
        held = HeldLease(group.shard(0), epoch, epoch)
        owners.append(ReplayShard(Shard(0, held, run(groups.shards(group))[0]), key, item))
    outcomes = []
    for one in reversed(owners):
        new = one.window.copy()
        assert list(new.emit(3, 10)) == [0, 1, 2]
        planned = Planned(one, new, emits=True)
        run(write([planned]))
        outcomes.append(planned.outcome)
    assert outcomes == ["written", "fenced"]
