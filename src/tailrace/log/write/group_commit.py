"""Group commit: what a producer has taken, how much of it is on its way into the log, and what to do next.

A pure state machine without threads, event loop, clock or storage.  `Producer` drives it from threads, under its lock,
`AsyncProducer` from one task.  A sender adds to the `open` batch.  The driver asks for the `next_step` and carries it
out: it puts the bytes of a batch, commits the oldest batch in flight, or waits.  It reports each answer with `settled`,
or with `fail`, which fails everything sent so far: no chunk may be in the log if an earlier one is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from tailrace.errors import BadSetting, Broken, Closed, OutcomeUnknown
from tailrace.log.write.acknowledgement import CommitBatch
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.log.write.linger import Linger

B = TypeVar("B", bound=CommitBatch)
P = TypeVar("P")
MAX_LOST_BATCHES = 1000
"""Failed batches that a producer remembers until a flush reports them."""


class GroupSettings(NamedTuple):
    """How a producer groups records: `linger` is how long a commit waits for further records, `max_bytes` bounds what
    is buffered and in flight, `max_puts` how many chunks are put at the same time."""

    linger: Linger | None = None
    max_bytes: int = 64 * 1024 * 1024
    max_puts: int = 2


DEFAULTS = GroupSettings()


class Flight(Generic[B, P]):
    """A batch between its last record and its acknowledgement, and the driver's `put` of its bytes once that has
    begun."""

    __slots__ = ("batch", "put")

    def __init__(self, batch: B) -> None:
        self.batch = batch
        self.put: P | None = None


class PutBytes(NamedTuple, Generic[B, P]):
    """The driver encodes the batch and starts to put its bytes."""

    flight: Flight[B, P]


class CommitOldest(NamedTuple, Generic[B, P]):
    """The driver waits for the bytes of the oldest batch in flight and appends them to the log."""

    flight: Flight[B, P]


class WaitForWork(NamedTuple):
    """The driver waits for work, at most for `seconds` (None: for as long as it takes)."""

    seconds: float | None


class Stop(NamedTuple):
    """The producer is closed and has nothing left."""


Step: TypeAlias = PutBytes[B, P] | CommitOldest[B, P] | WaitForWork | Stop


class GroupCommit(Generic[B, P]):
    """The state of one producer.  The driver makes sure that only one of its threads or tasks is inside."""

    __slots__ = (
        "_max_bytes",
        "_max_puts",
        "_new_batch",
        "_topic",
        "closing",
        "failed",
        "full",
        "in_flight",
        "limit",
        "linger",
        "lost",
        "open",
        "outstanding",
    )  # fmt: skip

    def __init__(self, topic: str, settings: GroupSettings, new_batch: Callable[[], B]) -> None:
        if settings.max_bytes < 1:
            raise BadSetting(f"a producer's max_bytes is at least 1, not {settings.max_bytes}")
        self._topic, self._new_batch = topic, new_batch
        self._max_bytes, self._max_puts = settings.max_bytes, settings.max_puts
        self.linger = settings.linger or Linger()
        self.open = new_batch()
        """The batch that takes records."""
        self.full = deque[B]()
        """Batches that take no more records and wait for their bytes to be put."""
        self.in_flight = deque[Flight[B, P]]()
        """Batches on their way, oldest first: the order in which they are committed."""
        self.outstanding = 0
        """Bytes of all records that are neither committed nor failed."""
        self.limit = settings.max_bytes
        """A sender waits while this many bytes are outstanding; 0 once the producer takes nothing more."""
        self.closing = False
        self.failed: Exception | None = None
        """Why the producer takes nothing more."""
        self.lost = deque[B](maxlen=MAX_LOST_BATCHES)
        """Failed batches that no flush has reported."""

    # -- taking records
    def took(self, size: int) -> bool:
        """Count bytes that were added to the open batch; returns whether it is full now."""
        self.outstanding += size
        return self.open.buffer.size >= CHUNK_BYTES

    def has_room(self, now: float) -> bool:
        """Whether a sender may add records; if it has to wait, the buffered records linger no longer.  `Closed` if the
        producer takes nothing more."""
        if self.failed is not None:
            raise Closed(f"this producer of {self._topic!r} has failed: {self.failed}") from self.failed
        if self.closing:
            raise Closed(f"this producer of {self._topic!r} is closed")
        if self.outstanding < self._max_bytes:
            return True
        if self.linger.seconds:
            self.seal(now)
        return False

    def seal(self, now: float) -> None:
        """Close the open batch to further records, if it has any; the next batch takes them."""
        if self.open.buffer.count:
            self.linger.gathered(self.open.buffer.size, now)
            self.full.append(self.open)
            self.open = self._new_batch()

    def close(self, now: float) -> None:
        """Take nothing more, and commit what is buffered."""
        self.seal(now)
        self.closing, self.limit = True, 0

    # -- what to do next
    @property
    def is_idle(self) -> bool:
        """Whether nothing is full or in flight, and the producer has not failed."""
        return not self.full and not self.in_flight and self.failed is None

    def next_step(self, now: float) -> Step[B, P]:
        """What the driver does next."""
        if self.in_flight and (not self.full or len(self.in_flight) >= self._max_puts):
            return CommitOldest(self.in_flight[0])
        if not self.full:
            seconds = self._seconds_to_linger(now)
            if seconds is None and self.closing:
                return Stop()
            if seconds != 0:
                return WaitForWork(seconds)
            self.seal(now)
        return PutBytes(self._start(self.full.popleft()))

    def start_open(self) -> Flight[B, P]:
        """Put the open batch in flight at once: the caller waits for it, and commits it."""
        flight = self._start(self.open)
        self.open = self._new_batch()
        return flight

    def _start(self, batch: B) -> Flight[B, P]:
        self.in_flight.append(Flight(batch))
        return self.in_flight[-1]

    def _seconds_to_linger(self, now: float) -> float | None:
        """Seconds until the buffered records should be committed; None if there are none."""
        if not self.open.buffer.count:
            return None
        if not self.linger.seconds:
            return 0.0
        if self.open.began is None:
            self.open.began = now
        return self.linger.left(now - self.open.began, waited=self.open.waited)

    # -- answers
    def settled(self) -> B:
        """Take the oldest batch, which the driver has finished, out of flight."""
        batch = self.in_flight.popleft().batch
        self.outstanding -= batch.size
        if batch.error is not None:
            self.lost.append(batch)
        return batch

    def fail(self, error: Exception, now: float) -> None:
        """Put everything that was sent so far in flight, for the driver to finish with this error, in order.

        If the outcome of a commit is unknown, order could break, so the producer takes nothing more."""
        if isinstance(error, (OutcomeUnknown, Broken)):
            self.refuse(error)
        self.seal(now)
        while self.full:
            self._start(self.full.popleft())

    def refuse(self, error: Exception) -> None:
        """Take nothing more, for this reason."""
        self.failed, self.limit = error, 0

    # -- reports
    def pending(self) -> list[B]:
        """The batches that are full or in flight, oldest first."""
        return [*(flight.batch for flight in self.in_flight), *self.full]

    def take_unreported(self, others: Sequence[B] = ()) -> list[B]:
        """Lost batches, and `others`, with records whose loss no sender has seen; a flush reports them once."""
        unreported = [batch for batch in (*self.lost, *others) if batch.unsaid]
        self.lost.clear()
        for batch in unreported:
            batch.tell(self, batch.records)
        return unreported
