"""Scenarios: who acts together; and the mutants, each a rule taken away, with a schedule that shows the harm."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from tests.model.keepers import cleaner, member, merger, reader, retention, roller
from tests.model.world import Cast
from tests.model.writers import drainer, grower, named, pipeline, producer

_TWO: Cast = {"a": (producer([(0,), (0, 1)]), 0), "b": (producer([(1, 0)]), 0)}
_ONCE = partial(roller, times=1), 0

SCENARIOS: dict[str, Cast] = {
    "append": {**_TWO, "roller": (roller, 0), "cleaner": (cleaner, 0), "reader": (reader(0), 0)},
    "clean": {
        "a": (producer([(0,), (0,)]), 0),
        "cleaner": (cleaner, 0),
        "cleaner2": (cleaner, 0),
        "roller": (roller, 0),
    },
    "merge": {
        "a": (producer([(0,), (0, 1), (0,), (0,)]), 0),
        "roller": (roller, 0),
        "roller2": (roller, 0),
        "merger": (merger(0), 1),
        "merger2": (merger(1), 0),
        "cleaner": (cleaner, 0),
        "reader": (reader(0), 0),
    },
    "retain": {
        "a": (producer([(0,), (0, 1), (0,)]), 0),
        "b": (producer([(0,)]), 0),
        "roller": (roller, 0),
        "merger": (merger(0), 0),
        "retention": (retention, 0),
        "retention2": (retention, 0),
        "reader": (reader(0), 0),
    },
    "read": {"merger": (merger(0), 0), "cleaner": (cleaner, 0), "reader": (reader(0), 0)},
    "doubt": {"a": (producer([(0,), (0,)]), 0), "roller": (roller, 0), "merger": (merger(0), 0)},
    "forget": {
        "a": (producer([(0,)]), 0),
        "roller": _ONCE,
        "merger": (merger(0, 6), 0),
        "cleaner": (cleaner, 0),
    },
    "merge2": {"merger": (merger(0), 1), "merger2": (merger(1), 0), "retention": (retention, 0)},
    "unseen": {"roller": (roller, 0), "a": (producer([(0,), (0,)]), 0), "merger": (merger(0, 1), 0)},
    "floor": {"retention": (retention, 0), "retention2": (retention, 0), "merger": (merger(0), 0)},
    "named": {
        "named": (named, 2),
        "b": (producer([(0,), (1,)]), 0),
        "roller": (roller, 0),
        "cleaner": (cleaner, 0),
    },
    "pipeline": {
        "pipe": (pipeline, 2),
        "b": (producer([(0,)]), 0),
        "roller": (roller, 0),
        "cleaner": (cleaner, 0),
    },
    "group": {"member1": (member, 1), "member2": (member, 1)},
    "grow": {
        "a": (producer([(0,), (0,), (0,)]), 0),
        "b": (producer([(1,), (1,)]), 0),
        "grower": (grower, 1),
        "drainer0": (drainer(0), 0),
        "drainer1": (drainer(1), 0),
    },
    "grow2": {
        **_TWO,
        "grower": (grower, 1),
        "roller": (roller, 0),
        "cleaner": (cleaner, 0),
        "merger": (merger(0), 0),
        "reader": (reader(0), 0),
    },
    "grow3": {"named": (named, 2), "pipe": (pipeline, 1), "grower": (grower, 0), "grower2": (grower, 0)},
    "all": {
        **_TWO,
        "named": (named, 1),
        "pipe": (pipeline, 1),
        "roller": (roller, 0),
        "cleaner": (cleaner, 0),
        "cleaner2": (cleaner, 0),
        "merger": (merger(0), 1),
        "retention": (retention, 0),
        "reader": (reader(0), 0),
        "reader2": (reader(1), 0),
    },
}

SMALL: dict[str, Cast] = {
    "s.append": {"a": (producer([(0,)]), 0), "b": (producer([(0, 1)]), 0), "roller": _ONCE},
    "s.order": {"a": (producer([(0,), (0,)]), 0), "roller": _ONCE},
    "s.clean": {"a": (producer([(0,)]), 0), "cleaner": (cleaner, 0)},
    "s.gc": {"a": (producer([(0,)]), 0), "roller": _ONCE, "cleaner": (cleaner, 0)},
    "s.two": {"a": (producer([(0,)]), 0), "cleaner": (cleaner, 0), "cleaner2": (cleaner, 0)},
    "s.doubt": {"a": (producer([(0,)]), 0), "roller": _ONCE, "merger": (merger(0, 1), 0)},
    "s.retain": {"a": (producer([(0,)]), 0), "roller": _ONCE, "retention": (partial(retention, times=2), 0)},
    "s.merge": {
        "merger": (merger(0, 1), 1),
        "merger2": (merger(1, 1), 0),
        "retention": (partial(retention, times=1), 0),
    },
    "s.forget": {
        "a": (producer([(0,)]), 0),
        "roller": _ONCE,
        "cleaner": (cleaner, 0),
        "merger": (merger(0, 1), 0),
    },
    "s.read": {"merger": (merger(0, 1), 0), "reader": (reader(0), 0)},
    "s.fence": {"merger": (merger(0, 1), 0), "cleaner": (cleaner, 0)},
    "s.named": {"named": (partial(named, batches=2), 1), "roller": _ONCE},
    "s.pipe": {"pipe": (partial(pipeline, end=2), 1), "roller": _ONCE},
    "s.grow": {"a": (producer([(0,)]), 0), "grower": (grower, 0), "drainer": (drainer(0), 0)},
    "s.group": {"member1": (member, 1), "member2": (member, 0)},
}
"""Small enough to be explored whole."""

PREFILL = {
    "s.doubt": 1,
    "s.forget": 1,
    "s.merge": 3,
    "s.read": 3,
    "s.fence": 2,
    "read": 3,
    "doubt": 1,
    "forget": 1,
    "merge2": 3,
    "floor": 3,
    "unseen": 1,
}
"""Pages that are there before the schedule begins."""


class Mutant(NamedTuple):
    """A rule taken away: the scenarios in which that shows, a seed of the first one, and the harm it does there."""

    scenarios: str
    seed: int | None
    harm: str


MUTANTS: dict[str, Mutant] = {
    "append.page": Mutant("append clean", 47, "a record twice"),
    "append.gc": Mutant("append clean", 12, "committed bytes deleted"),
    "append.b": Mutant("append", 1, "head grows without bound"),
    "append.ids": Mutant("append", 0, "a record twice"),
    "roll.page": Mutant("all s.append append", 491, "pages do not join: records lost or twice"),
    "roll.k": Mutant("append", 1, "pages do not join: records lost or twice"),
    "merge.v": Mutant("merge2 merge", 4, "pages do not join: records lost or twice"),
    "merge.gc": Mutant("s.fence read merge", 30, "committed bytes deleted"),
    "merge.delete_first": Mutant("merge2 merge", 0, "pages do not join: records lost or twice"),
    "drop.v": Mutant("merge2 retain", 4, "records above the floor removed"),
    "floor.less": Mutant("floor retain", 12, "records above the floor removed"),
    "retain.page_first": Mutant("floor retain", 0, "records above the floor removed"),
    "named.seq": Mutant("named", 334, "a record twice"),
    "named.both": Mutant("named", 1, "a record twice"),
    "reader.seq": Mutant("pipeline", 10, "a record twice"),
    "commit.owner": Mutant("group", 187, "commit by a past owner accepted"),
    "commit.epoch": Mutant("group", 577, "commit by a past owner accepted"),
    "clean.refs_before_gc": Mutant("append clean", 14, "committed bytes deleted"),
    "clean.no_fence": Mutant("append clean", 12, "committed bytes deleted"),
    "clean.gc_unconfirmed": Mutant("s.clean clean", 319, "committed bytes deleted"),
    "clean.delete_without_refs": Mutant("append", 0, "committed bytes deleted"),
    "clean.any_gen": Mutant("append clean", 33, "committed bytes deleted"),
    "clean.pages_before_head": Mutant("append clean merge", 29, "committed bytes deleted"),
    "reput.same_name": Mutant("append clean", 48, "committed bytes deleted"),
    "read.no_base_check": Mutant("read merge", 1, "reader skipped records"),
    "read.skip_missing": Mutant("read merge", 254, "reader skipped records"),
    "text.gc_before_page": Mutant("append s.gc clean", 349, "a record twice"),
    "text.always_look": Mutant("retain all", 4, "OutcomeUnknown although no attempt is in doubt"),
    "text.look_by_number": Mutant("doubt s.doubt", 469, "OutcomeUnknown although the page is there, merged"),
    "look.forgot": Mutant("forget s.forget", 32152, "a record twice"),
    "text.merge_forgets_ids": Mutant("doubt s.doubt", 5877, "a record twice"),
    "text.merge_two_steps": Mutant("merge2 merge", 28, "pages do not join: records lost or twice"),
    "text.roll_puts_head": Mutant("clean append retain", 47, "gc above gen: every producer fenced for ever"),
    "text.gc_not_monotone": Mutant("all clean", 249, "committed bytes deleted"),
    "text.reader_without_id": Mutant("pipeline", 135, "the source was told more than is in the log"),
    "text.commit_without_position": Mutant("group", 22, "a message handled twice, skipped or out of order"),
    "text.own_take_ignored": Mutant("group", 11, "livelock: member2 member1' member1"),
    "text.same_member_id": Mutant("group", 4, "commit by a past owner accepted"),
    "text.next_number": Mutant("read merge", 0, "livelock: reader"),
    "text.give_up": Mutant("append doubt", 9, "order of a producer broken"),
    "text.grow_flag_only": Mutant("grow", 30, "a record twice"),
    "text.grown_before_page": Mutant("grow", 261, "a record twice"),
    "text.append_after_roll": Mutant("grow", 60, "order of a key broken by growing"),
    "grow.early": Mutant("grow", 15, "order of a key broken by growing"),
    "grow.old_partitions": Mutant("grow", 5, "order of a key broken by growing"),
    "text.missing_is_gone": Mutant("append doubt", 156, "OutcomeUnknown although the page is there, merged"),
    "text.refs_without_join": Mutant("append clean", 42, "committed bytes deleted"),
    "text.merge_without_join": Mutant("unseen doubt", 3376, "bytes are not the records of these offsets"),
}

SURVIVORS: dict[str, Mutant] = {
    "roll.absent": Mutant("append retain all", None, "page and k of the head already say so; kept as an alarm"),
    "named.epoch": Mutant("named", None, "seq alone is enough; the epoch tells an old life to stop"),
    "take.seen": Mutant(
        "group", None, "the epoch rises either way, and commits are fenced by it; a courtesy to the owner"
    ),
}
"""Rules whose loss does no harm in the model, and why they are kept all the same."""
