"""Appending: one guarded write for one stream or for several, which takes effect once however often it is sent.

Each attempt requires that its streams are as seen (`n` and `etag`), so of two attempts only one can land.
After a refusal or a missing answer it compares with the stored stream: if the ids of this append are in it, the append
has happened.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.guard import Outcome, Refused, Unanswered, Written
from tailrace.errors import BadInput, OutcomeUnknown, TooLarge, VersionConflict
from tailrace.events.event import Event, check_version, checked
from tailrace.events.payload import Compression, check_compression
from tailrace.events.reading import Forward, read_tip, true_tip
from tailrace.events.tip import NewEvents, Tip, TipLimits, as_seen, plan, tip_key
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ACTIONS
from tailrace.storage.randomness import random_bytes
from tailrace.storage.tables import Absent, Action, Check, Equals


def written_now() -> str:
    """The present time for an event that is appended without one, in the form of an event's timestamp."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


_IN_NAMES = bytes.maketrans(b"+/", b"-_")


def random_id() -> str:
    """A random id for an event: 96 random bits, as 16 letters that can be in a name."""
    return binascii.b2a_base64(random_bytes(), newline=False).translate(_IN_NAMES).decode()


@dataclass(frozen=True, slots=True)
class AppendSettings:
    """How an event store writes: when Tips calve, how data is compressed, and where ids and times come from."""

    limits: TipLimits = field(default_factory=TipLimits)
    compression: Compression = "deflate"
    new_id: Callable[[], str] = random_id
    now: Callable[[], str] = written_now

    def __post_init__(self) -> None:
        check_compression(self.compression)


@dataclass(slots=True)
class StreamAppend:
    """One stream's part of an append: a batch for it, or, if that is None, only the condition that the stream is as
    expected.

    `expected` is a version.  `seen` is a Tip that the caller knows already; with `strict`, the stored one must be the
    same."""

    stream: str
    batch: NewEvents | None
    expected: int | None = None
    seen: Tip | None = None
    strict: bool = False
    given: bool = False
    """Whether the caller gave ids, so that an earlier process may have stored these events."""

    def action(self, tip: Tip, settings: AppendSettings, etag: str) -> tuple[tuple[Action, ...], Tip]:
        """The writes on a stream, given the Tip as seen, and the Tip that they make."""
        if self.batch is not None:
            return plan(tip, self.batch, settings.limits, etag)
        if not tip.exists:
            return (Check(tip_key(self.stream), (Absent(),)),), tip
        return (Check(tip_key(self.stream), as_seen(tip) if self.strict else (Equals("n", tip.version),)),), tip

    def wrong(self, tip: Tip) -> bool:
        """Whether a stream differs from what the caller expects."""
        if self.strict and self.seen is not None:
            return (tip.version, tip.etag) != (self.seen.version, self.seen.etag)
        return self.expected is not None and tip.version != self.expected


def part(
    stream: str,
    events: Sequence[Event],
    unfolds: Sequence[Event],
    settings: AppendSettings,
    *,
    expected: int | None = None,
    seen: Tip | None = None,
    strict: bool = False,
) -> StreamAppend:
    """Check and encode events for a stream."""
    new, derived = checked(stream, events, unfolds)
    if expected is not None:
        check_version(stream, expected)
    batch = NewEvents.of(new, derived, settings.compression, settings.now(), settings.new_id)
    return StreamAppend(stream, batch, expected, seen, strict, any(event.id for event in new))


class StreamAppended(NamedTuple):
    """A stored append to one stream: the stream's version after it, and the Tip as last seen."""

    version: int
    tip: Tip
    own: bool
    """Whether the Tip is as this append made it, without a later write."""


def commit(parts: Sequence[StreamAppend], settings: AppendSettings) -> Steps[list[StreamAppended]]:
    """Write all parts or none; returns the Tip that each part made.

    `VersionConflict` when a stream is not as expected, `OutcomeUnknown` when an answer was lost and the trace of the
    append is gone.
    """
    if len({p.stream for p in parts}) < len(parts):
        raise BadInput(f"a stream is named twice in one append: {[p.stream for p in parts]}")
    tips = []
    for p in parts:
        tips.append(p.seen or (yield from read_tip(p.stream)))
    return (yield from _Attempts(parts, settings, tips, settings.new_id()).run())


@dataclass(slots=True)
class _Attempts:
    """The attempts of one append."""

    parts: Sequence[StreamAppend]
    settings: AppendSettings
    tips: list[Tip]
    etag: str
    doubt: bool = False

    def run(self) -> Steps[list[StreamAppended]]:
        """Try until it is written, or it is certain that it cannot be."""
        if any(p.given for p in self.parts) and (yield from self._is_stored([p.expected for p in self.parts])):
            return self._answer([p.expected or 0 for p in self.parts])
        attempts = 0
        while True:
            yield from self._check()
            planned = [p.action(tip, self.settings, self.etag) for p, tip in zip(self.parts, self.tips, strict=True)]
            actions = [action for some, _ in planned for action in some]
            if len(actions) > MAX_ACTIONS:
                raise TooLarge(
                    f"an append to {len(self.parts)} streams takes {len(actions)} actions; the limit is {MAX_ACTIONS}: "
                    "append to fewer streams at once"
                )
            outcome = yield from guard.attempt(*actions)
            if isinstance(outcome, Written):
                return [StreamAppended(after.version, after, True) for _, after in planned]
            starts = [tip.version for tip in self.tips]
            if (yield from self._landed(outcome, actions)):
                return self._answer(starts)
            yield from calls.pause(attempts)
            attempts += 1

    def _answer(self, starts: Sequence[int]) -> list[StreamAppended]:
        added = [len(p.batch.events) if p.batch is not None else 0 for p in self.parts]
        return [
            StreamAppended(at + k, tip, tip.etag == self.etag)
            for at, k, tip in zip(starts, added, self.tips, strict=True)
        ]

    def _check(self) -> Steps[None]:
        """Raise unless every stream is as expected.  A Tip from the cache or from a plain read may be old, so this
        reads first."""
        for n, p in enumerate(self.parts):
            if p.wrong(self.tips[n]) and not p.strict:
                self.tips[n] = yield from true_tip(p.stream)
            if p.wrong(self.tips[n]):
                raise conflict(p, self.tips[n])

    def _landed(self, outcome: Outcome, actions: Sequence[Action]) -> Steps[bool]:
        """Read the streams again; returns whether this append is in them."""
        before, self.doubt = list(self.tips), self.doubt or isinstance(outcome, Unanswered)
        for n, p in enumerate(self.parts):
            told = isinstance(outcome, Refused) and actions[outcome.index].key == tip_key(p.stream)
            # A refusal shows the committed item, where a plain read may still show the one before a transaction.
            item = outcome.item if isinstance(outcome, Refused) and told else (yield from guard.read(tip_key(p.stream)))
            self.tips[n] = Tip.of(p.stream, item)
        stands = yield from self._is_stored([tip.version for tip in before])
        moved = any((a.version, a.etag) != (b.version, b.etag) for a, b in zip(before, self.tips, strict=True))
        if moved and self.doubt and not stands:
            self._give_up_if_gone(stands)
            self.doubt = False  # the write was refused by another state, and can never land
        return bool(stands)

    def _is_stored(self, starts: Sequence[int | None]) -> Steps[bool | None]:
        """Whether this append is stored, beginning at these versions; None where it would leave no trace."""
        if any(p.batch is not None and tip.etag == self.etag for p, tip in zip(self.parts, self.tips, strict=True)):
            return True
        for p, tip, at in zip(self.parts, self.tips, starts, strict=True):
            if p.batch is None or not p.batch.events or at is None:
                continue
            same = (yield from _same_ids(p.stream, tip, at, p.batch.ids)) if tip.version > at else False
            if same is not None:
                return same
        return None

    def _give_up_if_gone(self, stands: bool | None) -> None:
        """Raise `OutcomeUnknown` if an append had no answer and its trace may be gone: its events pruned, its unfolds
        replaced."""
        if stands is None:
            names = ", ".join(repr(p.stream) for p in self.parts)
            raise OutcomeUnknown(
                f"an append to {names} had no answer, and what would tell is gone: its events were pruned, or its "
                "unfolds replaced, by others; read the stream, and decide again"
            )


def _same_ids(stream: str, tip: Tip, at: int, ids: Sequence[str]) -> Steps[bool | None]:
    """Whether the events from this index on have these ids; None if they were pruned."""
    if at >= tip.first:
        return [one.get("id") for one in tip.stored_events[at - tip.first : at - tip.first + len(ids)]] == list(ids)
    reader, found = Forward(stream, at, at + len(ids)), dict[int, str]()
    while page := (yield from reader.page()):
        found.update({event.index: event.id for event in page})
    return all(ids[index - at] == id for index, id in found.items()) if found else None


def conflict(p: StreamAppend, tip: Tip) -> VersionConflict:
    """The error for an append to a stream that is not as expected."""
    wanted = p.expected if p.expected is not None else p.seen.version if p.seen is not None else 0
    why = (
        f"is at version {tip.version}, not {wanted}"
        if tip.version != wanted
        else f"was written at version {tip.version}"
    )
    return VersionConflict(
        f"stream {p.stream!r} {why}: another writer was first; read it again, and decide again",
        stream=p.stream,
        version=tip.version,
    )
