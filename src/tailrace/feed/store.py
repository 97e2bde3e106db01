"""The event store of a home together with its feed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import BadSetting, UnknownPartition
from tailrace.events.store import Events
from tailrace.feed.feed import Feed, wanted
from tailrace.feed.indexing import Indexing
from tailrace.feed.partitioned import PartitionedFeed, starts_of
from tailrace.feed.state import check_owner, look, partitions_of, settled
from tailrace.feed.status import IndexStatus, catch_up, status
from tailrace.feed.validation import Validation, rebuild, validate
from tailrace.storage.calls import Store

if TYPE_CHECKING:
    from tailrace.feed.aio import AsyncFedEvents
    from tailrace.feed.checkpoints import Checkpoints

CATCH_UP_SECONDS = 60.0
MAX_PARTITIONS = 128


class FedEvents(Events):
    """An event store with a feed of all its events; made by `home.events()`."""

    def __init__(
        self, store: Store, *, start_indexing: Callable[[], Indexing | None], embedded: bool = True, **settings: Any
    ) -> None:
        super().__init__(store, **settings)
        self._start_indexing, self._embedded, self._home = start_indexing, embedded, store

    @property
    def aio(self) -> AsyncFedEvents:
        """This event store for asyncio."""
        from tailrace.feed.aio import AsyncFedEvents

        return AsyncFedEvents(self)

    def feed(
        self,
        checkpoint: int | Sequence[int] = 0,
        *,
        category: Collection[str] | str | None = None,
        stream: Collection[str] | str | None = None,
        type: Collection[str] | str | None = None,
        bodies: bool = True,
        partition: int | None = None,
    ) -> Feed:
        """Every event of the store from a checkpoint on, or only those of the named categories, streams or types.

        If the index has several partitions, `checkpoint` has one for each (`feed.positions`), unless `partition` names
        the only one to read.  With `bodies=False` events come without data and metadata.  For a home in a folder or in
        memory this process indexes appended events, unless another does already; on S3 and DynamoDB a Lambda does.
        `ForeignIndex` if the index in the home's table was made for another home."""
        self.store.run(check_owner())
        self._start_indexing()
        settings: dict[str, Any] = {
            "bodies": bodies,
            "wanted": wanted(category, stream, type),
            "indexing": self._start_indexing,
            "home": self._home,
            "catch_up": self.catch_up,
        }
        count = partitions_of(self.store.run(look()))
        if partition is not None and not 0 <= partition < count:
            raise UnknownPartition(f"the feed has {count} partitions, and none is {partition!r}")
        if partition is None and count > 1:
            return PartitionedFeed(self, starts_of(checkpoint, count), **settings)
        (start,) = starts_of(checkpoint, 1)
        return Feed(self, start, partition=partition or 0, **settings)

    @property
    def checkpoints(self) -> Checkpoints:
        """The stored checkpoints of the feed's consumer groups, to list, show, reset and override."""
        from tailrace.feed.checkpoints import Checkpoints

        return Checkpoints(self._home, self)

    # -- the index
    def create_index(self, partitions: int = 1) -> None:
        """Create the feed's index with this number of partitions, before its first reader creates it with one.

        Streams are spread over the partitions, and a consumer group shares them.  `BadSetting` if the index exists with
        another number."""
        if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
            raise BadSetting(f"an index has 1 to {MAX_PARTITIONS} partitions, not {partitions!r}")
        if (there := partitions_of(self.store.run(settled(partitions)))) != partitions:
            raise BadSetting(
                f"the index of the feed is there, with {there} partition{'s' * (there > 1)}, not {partitions}; their "
                "number is fixed when the index is made, which the first reader of the feed does"
            )

    def catch_up(self, seconds: float = CATCH_UP_SECONDS) -> None:
        """Wait until every event that was appended before this call is in the feed.

        `TimedOut` after `seconds`.  On S3 and DynamoDB, where a Lambda indexes, it returns at once."""
        if (indexing := self._start_indexing()) is not None:
            catch_up(self.store, lambda: indexing.failure, seconds)

    def index_status(self) -> IndexStatus:
        """How far the index of the feed is, which process indexes, and which error stops it, if any."""
        return status(self.store, embedded=self._embedded)

    def validate_index(self, told: Callable[[int], object] = lambda _: None) -> Validation:
        """Compare the feed's index with the events themselves; `told` is called with the number of events read so
        far."""
        return validate(self.store, told)

    def rebuild_index(self, *, all: bool = False, told: Callable[[int], object] = lambda _: None) -> int:
        """Add the events that the feed's index lacks, and return their number; `told` is called with the number so far.

        With `all` the whole index is made again, and every reader gets every event again.  `Busy` with `all` if a
        process, this one included, indexes at that time."""
        return rebuild(self.store, all=all, told=told)
