"""The event store: streams of events, each behind one guarded Tip, in the layout of the DynamoStore document.

Used from outside: store, event, append, reading, tip, archive, pruning, scrub, aio.
Read in this order: store, event, append, reading, loading, tip, stored, payload, codec, strategy, decider, cache,
archive, pruning, listing, scrub, aio.
"""

from tailrace.events.aio import AsyncDecider, AsyncEvents, AsyncStream
from tailrace.events.cache import AllowStale, AnyCachedValue, AssumeEmpty, Cache, RequireLatest
from tailrace.events.codec import Codec, JsonCodec, RawCodec
from tailrace.events.decider import Decider
from tailrace.events.event import Event, split_name, stream_name
from tailrace.events.pruning import Pruned
from tailrace.events.store import Events, Stream
from tailrace.events.strategy import (
    Strategy,
    custom,
    latest_known_event,
    multi_snapshot,
    rolling_state,
    snapshot,
    unoptimized,
)
from tailrace.events.tip import Tip

__all__ = [
    "AllowStale",
    "AnyCachedValue",
    "AssumeEmpty",
    "AsyncDecider",
    "AsyncEvents",
    "AsyncStream",
    "Cache",
    "Codec",
    "Decider",
    "Event",
    "Events",
    "JsonCodec",
    "Pruned",
    "RawCodec",
    "RequireLatest",
    "Strategy",
    "Stream",
    "Tip",
    "custom",
    "latest_known_event",
    "multi_snapshot",
    "rolling_state",
    "snapshot",
    "split_name",
    "stream_name",
    "unoptimized",
]
