"""The feed: every event of the store in one resumable order, made from the changes of its table.

Outside this package import from here: `Feed` and `FeedEvent`, which `home.events().feed()` gives.

`span` has the events of one append, `epoch` says which of them are new, `index` how an indexer writes them, `reading`
and `checkpoint` how a reader reads them.  `indexing` keeps the index up to date.  `consumer` and `checkpoints` say how
the processes of a group share the feed, and how far each group is.

Used from outside: feed, store, checkpoint, span, index, indexing, partition, reading, checkpoints, missing, validation,
state, aio.
Read in this order: feed, store, checkpoint, span, epoch, index, indexing, partition, partitioned, reading, consumer,
checkpoints, status, missing, validation, state, aio.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.feed.feed import Feed, FeedEvent

__all__ = ["Feed", "FeedEvent"]


def __getattr__(name: str) -> Any:
    """Load the feed when it is first used: it needs Arrow, which the indexer in a Lambda does not have."""
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.feed' has no attribute {name!r}")
    from tailrace.feed import feed

    return getattr(feed, name)
