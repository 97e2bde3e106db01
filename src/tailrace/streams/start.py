"""Starting places of readers of a change stream: in which shards, and where, "latest", a time or a token begins."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from functools import partial

from tailrace.errors import BadInput, BadToken, PositionLost
from tailrace.storage.changes import Changes
from tailrace.streams.lineage import Lineage
from tailrace.streams.shard import KEPT_SECONDS, Ask, untouched
from tailrace.streams.token import ShardPlace, Token

AHEAD_SECONDS = 300.0
"""How far ahead of the service's clock a token may be: beyond that, its age is unknown."""
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


def check_age(token: Token, now: float, listed: Container[str], changes: Changes, ask: Ask) -> None:
    """Raise `PositionLost` for a token so old that changes after it may have been trimmed without a trace, and
    `BadToken` for one whose age nothing tells.  `listed` are the shards that are still there."""
    beginning = [place.shard for place in token.shards if place.after is None]
    if token.at - now > AHEAD_SECONDS and beginning:
        raise BadToken(
            f"the token was taken {(token.at - now) / 60:.0f} minutes from now, by the clock of the service: the "
            "clock was wrong then, or the token was changed, and nothing tells whether changes behind it are gone. "
            'Start at "trim_horizon", and compare with the table itself'
        )
    if now - token.at <= KEPT_SECONDS:
        return
    gone = next((place.shard for place in token.shards if place.shard not in listed), None)
    unread = gone is None and not all(untouched(changes, ask, shard) for shard in beginning)
    if gone is None and not unread:
        return  # sequence numbers tell whether changes after them were trimmed
    why = "before anything was read of some shard" if unread else f"and its shard {gone} is gone"
    raise PositionLost(
        f"the token was taken {(now - token.at) / 3600:.0f} hours ago, {why}; changes are kept for 24 hours, and some "
        'may be gone. Start at "trim_horizon", and compare with the table itself'
    )


def bad_start(position: object) -> BadInput:
    """Return the error for a value that is no starting place."""
    return BadInput(f'a stream starts at "trim_horizon", "latest", a datetime with a zone or a token, not {position!r}')
