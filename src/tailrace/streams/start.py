"""Where readers of a change stream begin: places in its shards for "latest", for a time, for a token."""

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
"""How far the clocks that date changes may be apart.  The end of a shard is found again by its time, and some changes
of the seconds before it may come, but none after it is missed."""


def latest_places(lineage: Lineage, changes: Changes, ask: Ask, now: float) -> list[ShardPlace]:
    """The ends of all lines; everything before them counts as read.  Children of these shards are read whole."""
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
    """The second in which a moment is; one without a time zone is refused."""
    if moment.tzinfo is None:
        raise BadInput(f"{moment!r} has no time zone; say which: datetime.now(UTC)")
    return int(moment.timestamp())


def check_age(token: Token, now: float) -> None:
    """Refuse a token that cannot tell what was trimmed since it was taken."""
    if now - token.at > KEPT_SECONDS and any(place.after is None for place in token.shards):
        # At the beginning of a shard no sequence number tells whether what came then was trimmed since.
        raise PositionLost(
            f"the token was taken {(now - token.at) / 3600:.0f} hours ago, before anything was read of some shard; "
            'changes are kept for 24 hours, and some may be gone. Start at "trim_horizon", and compare with the '
            "table itself"
        )


def bad_start(position: object) -> BadInput:
    """The error for what is no place to begin at."""
    return BadInput(f'a stream starts at "trim_horizon", "latest", a datetime with a zone or a token, not {position!r}')
