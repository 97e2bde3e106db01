"""Rules: the queue's guarded writes, one function each, as in the log's model."""

from __future__ import annotations

from typing import Any

from tests.model.queue.items import Message, Replay, Shard, Window
from tests.model.rules import NO, Mutants

MARK = "moved"
"""What is left of a delayed message that is in the log."""


def TAKE(m: Mutants, s: Shard, seen: Shard, me: str) -> Shard | str:
    """Own the shard under the next epoch, if owner and epoch are as seen."""
    return NO if (s.owner, s.epoch) != (seen.owner, seen.epoch) else s._replace(owner=me, epoch=s.epoch + 1)


def RELEASE(m: Mutants, s: Shard, me: str, epoch: int) -> Shard | str:
    """Give the shard back."""
    return NO if (s.owner, s.epoch) != (me, epoch) else s._replace(owner=None)


def WRITE(m: Mutants, s: Shard, me: str, epoch: int, v: int, new: Window, emits: bool) -> Shard | str:
    """Acknowledge, count and emit, if I own the shard in this epoch, and nothing was written since `v`."""
    if s.owner != me and not m & {"window.owner", "window.both"}:
        return NO
    if s.epoch != epoch and not m & {"window.epoch", "window.both"}:
        return NO
    if s.v != v and "window.v" not in m:
        return NO
    if emits and s.paused % 2 and "window.paused" not in m:
        return NO
    return s._replace(v=s.v + 1, window=new)


def HELD(m: Mutants, s: Shard, me: str, epoch: int) -> Shard | str:
    """A write of another item goes through only while I hold the shard."""
    return NO if (s.owner, s.epoch) != (me, epoch) and "held.fence" not in m else s


def REPLAYED(m: Mutants, r: Replay, v: int, new: Window) -> Replay | str:
    """The same for a replay's own window."""
    return NO if r.v != v and "replay.v" not in m else r._replace(v=r.v + 1, window=new)


def DO(m: Mutants, done: tuple[Any, ...], what: Any) -> tuple[Any, ...]:
    """What a transactional handler, or the dead-letter topic, keeps."""
    return (*done, what)


def PUSH(m: Mutants, log: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    """A message at the end of the log; that this is exact is the log's model."""
    return (*log, message)


def ONCE(m: Mutants, item: Any, message: Message) -> Message | str:
    """A dedup id, if it is not there."""
    return NO if item is not None and "dedup.absent" not in m else message


def DELAY(m: Mutants, item: Any, message: Message) -> Message | str:
    """A message that waits for its time, or has: only this very message has this key."""
    return NO if item is not None and "delay.absent" not in m else message


def IN_TIME(m: Mutants, low: int, due: int) -> int | str:
    """A delayed push is refused where what is left of moved messages may have been removed."""
    return NO if low > due and "delay.low" not in m else low


def MOVED(m: Mutants, item: Any) -> str:
    """A delayed message that is moved into the log leaves a mark, if it was still there."""
    return NO if item in (None, MARK) and "move.exists" not in m else MARK


def RAISE(m: Mutants, low: int, to: int) -> int | str:
    """From now on, what is due before `to` cannot be delayed any more."""
    return NO if low >= to else to


def SWEEP(m: Mutants, item: Any) -> str | None:
    """Remove a mark."""
    return NO if item != MARK else None


def PAUSE(m: Mutants, s: Shard, seen: int) -> Shard | str:
    """Stop or go on emitting, if that is as it was seen."""
    if "pause.seen" in m:
        return s._replace(paused=s.paused + (s.paused % 2 == seen % 2))
    return NO if s.paused != seen else s._replace(paused=seen + 1)
