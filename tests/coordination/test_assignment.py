"""Assignment: even, with the fewest moves, and the same answer whoever works it out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.coordination.assignment import assign

members = st.lists(st.integers(1, 40), unique=True, min_size=1, max_size=12)


def grown(shards: int, names: str) -> list[list[int]]:
    """The sizes of the shares as members come one by one, largest first."""
    current: dict[int, str] = {}
    sizes = []
    for n in range(len(names)):
        shares = assign(range(shards), names[: n + 1], current)
        current = {shard: name for name, share in shares.items() for shard in share}
        sizes.append(sorted(map(len, shares.values()), reverse=True))
    return sizes


def test_thirty_two_shards():
    assert grown(32, "abcd") == [[32], [16, 16], [11, 11, 10], [8, 8, 8, 8]]


def test_twenty_four_shards():
    assert grown(24, "abcdef") == [[24], [12, 12], [8] * 3, [6] * 4, [5, 5, 5, 5, 4], [4] * 6]


@pytest.mark.parametrize(("shards", "names"), [(3, "abcde"), (0, "ab"), (1, "ab")])
def test_fewer_shards_than_members(shards: int, names: str):
    shares = assign(range(shards), names, {})
    assert sorted(shard for share in shares.values() for shard in share) == list(range(shards))
    assert shares.keys() == set(names)


def test_nobody_gets_nothing():
    assert assign(range(4), [], {0: 1}) == {}


def moves(shares: dict[int, list[int]], current: dict[int, int]) -> int:
    return sum(current.get(shard, member) != member for member, share in shares.items() for shard in share)


@given(st.integers(0, 64), members, st.data())
def test_even_whole_with_the_fewest_moves_and_independent_of_order(shards: int, live: list[int], data: st.DataObject):
    owners = st.sampled_from([*live, 99])
    current = data.draw(st.dictionaries(st.integers(0, max(shards - 1, 0)), owners, max_size=shards))
    shares = assign(range(shards), live, current)

    assert sorted(shard for share in shares.values() for shard in share) == list(range(shards))
    sizes = [len(shares[member]) for member in live]
    assert max(sizes) - min(sizes) <= 1

    held = sorted(([s for s, o in current.items() if o == m and s < shards] for m in live), key=len, reverse=True)
    least, more = divmod(shards, len(live))
    must_move = sum(max(0, len(mine) - least - (n < more)) for n, mine in enumerate(held))
    gone = sum(owner not in live and shard < shards for shard, owner in current.items())
    assert moves(shares, {s: o for s, o in current.items() if s < shards}) == must_move + gone

    assert assign(reversed(range(shards)), data.draw(st.permutations(live)), current) == shares


@given(st.integers(0, 64), members)
def test_what_was_assigned_stays(shards: int, live: list[int]):
    shares = assign(range(shards), live, {})
    current = {shard: member for member, share in shares.items() for shard in share}
    assert assign(range(shards), live, current) == shares


@given(st.integers(1, 40), members, members, st.randoms(use_true_random=False))
def test_members_who_act_one_by_one_come_to_rest(shards: int, before: list[int], after: list[int], rng):
    """Each member lets go of what is over its share and takes what is free, in any order; nobody is told what to do."""
    current = {s: m for m, share in assign(range(shards), before, {}).items() for s in share if m in after}
    for _ in range(4 * len(after)):
        member = rng.choice(after)
        mine = assign(range(shards), after, current)[member]
        current = {s: m for s, m in current.items() if m != member or s in mine}
        current |= {s: member for s in mine if s not in current}
    for _ in range(3):
        for member in after:
            mine = assign(range(shards), after, current)[member]
            current = {s: m for s, m in current.items() if m != member or s in mine}
            current |= {s: member for s in mine if s not in current}
    sizes = [list(current.values()).count(member) for member in after]
    assert sum(sizes) == shards
    assert max(sizes) - min(sizes) <= 1
