"""Starting places of readers of a change stream: in which shards, and where, "latest", a time or a token begins."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from tailrace.errors import BadInput, PositionLost
from tailrace.storage.changes import Changes
from tailrace.streams.lineage import Lineage
from tailrace.streams.shard import Ask
from tailrace.streams.token import ShardPlace, Token

KEPT_SECONDS = 24 * 3600
CLOCK_SECONDS = 5.0
"""How far apart the clocks that date changes may be.  A reader finds the end of a shard again by its time; it may then
deliver some changes of the seconds before, but misses none after it."""


def latest_places(lineage: Lineage, changes: Changes, ask: Ask, now: float) -> list[ShardPlace]:
    """Return the places at the ends of all lines of shards; everything before them counts as read.  Children of these
    shards are read whole."""
    places = []
    for shard in lineage.at_latest():
        at, sequence = ask(partial(changes.latest, shard.id))
        if at == "LATEST":
            since = int((now - CLOCK_SECONDS) * 1000)
            places.append(ShardPlace(shard.id, shard.parent, since=since, latest=True))
        else:
            places.append(ShardPlace(shard.id, shard.parent, after=sequence))
    return places


def second_of(moment: datetime) -> int:
    """Return the second that a moment is in; `BadInput` for a datetime without a time zone."""
    if moment.tzinfo is None:
        raise BadInput(f"{moment!r} has no time zone; say which: datetime.now(UTC)")
    return int(moment.timestamp())


def check_age(token: Token, now: float) -> None:
    """Raise `PositionLost` for a token so old that changes after it may have been trimmed without a trace."""
    if now - token.at > KEPT_SECONDS and any(place.after is None for place in token.shards):
        # A place at the beginning of a shard has no sequence number to tell whether later changes were trimmed.
        raise PositionLost(
            f"the token was taken {(now - token.at) / 3600:.0f} hours ago, before anything was read of some shard; "
            'changes are kept for 24 hours, and some may be gone. Start at "trim_horizon", and compare with the '
            "table itself"
        )


def bad_start(position: object) -> BadInput:
    """Return the error for a value that is no starting place."""
    return BadInput(f'a stream starts at "trim_horizon", "latest", a datetime with a zone or a token, not {position!r}')
