"""Rules: the guarded writes, one function each.

A rule takes the mutants in force, the stored item (None: there is none) and its arguments.  It gives the new item, None
to delete it, or NO when the condition does not hold.  A mutant is a condition's name: with it the condition is not
asked.  `text.*` mutants are plausible readings of the protocol's words that are wrong.
"""

from __future__ import annotations

from tests.model.items import FULL, Entry, Head, Named, Offsets, Page, Pipe, Shard, plus

NO = "NO"
Mutants = frozenset[str]


# --- the log ----------------------------------------------------------------------------------------------------------
def APPEND(m: Mutants, h: Head, page: int, entry: Entry) -> Head | str:
    """One more entry, if the page is the one seen, the fence has not passed it, there is room, and it is new."""
    if h.page != page and "append.page" not in m:
        return NO
    if h.gc > entry.gen and "append.gc" not in m:
        return NO
    if h.b >= FULL and "append.b" not in m:
        return NO
    if entry.id in h.ids and "append.ids" not in m:
        return NO
    return h._replace(k=h.k + 1, b=h.b + 1, nx=plus(h.nx, entry.runs), ids=(*h.ids, entry.id), e=(*h.e, entry))


def ROLL_HEAD(m: Mutants, h: Head, seen: Head) -> Head | str:
    """Empty the head, if page and k are as seen; five attributes change and no other."""
    if h.page != seen.page and "roll.page" not in m:
        return NO
    if h.k != seen.k and "roll.k" not in m:
        return NO
    kept = seen if "text.roll_puts_head" in m else h
    return kept._replace(page=seen.page + 1, k=0, b=0, ids=(), e=())


def ROLL_PAGE(m: Mutants, p: Page | None, new: Page) -> Page | str:
    """The page that a roll makes, if there is none."""
    return NO if p is not None and "roll.absent" not in m else new


def GROW(m: Mutants, h: Head, seen: Head) -> Head | str:
    """A roll that also grows, so that appends in flight, made for the partitions before, die with their page."""
    if "text.grow_flag_only" in m:
        return NO if h.cut else h._replace(cut=(h.page, h.nx))
    rolled = ROLL_HEAD(m, h, seen)
    return rolled._replace(cut=(rolled.page, seen.nx)) if isinstance(rolled, Head) else NO


# --- upkeep -----------------------------------------------------------------------------------------------------------
def CHECK_GC(m: Mutants, h: Head, gen: int) -> Head | str:
    """A merge's object must not be behind the fence."""
    return NO if h.gc > gen and "merge.gc" not in m else h


def MERGE(m: Mutants, p: Page | None, v: int, new: Page) -> Page | str:
    """The first of the merged pages takes all entries, if it is as read."""
    return NO if (p is None or p.v != v) and "merge.v" not in m else new


def DROP(m: Mutants, p: Page | None, v: int) -> str | None:
    """Delete a page, if it is as read."""
    return NO if p is None or (p.v != v and "drop.v" not in m) else None


def WIPE(m: Mutants, p: Page | None) -> None:
    """Delete without a condition: what no rule may do."""


def FLOOR(m: Mutants, h: Head, floor: Offsets) -> Head:
    """Floors rise, each on its own."""
    return h._replace(floor=floor if "floor.less" in m else tuple(map(max, h.floor, floor)))


def FIRST(m: Mutants, h: Head, seen: int, new: int) -> Head | str:
    """The lowest page that is kept, if it was as seen."""
    return NO if h.first != seen else h._replace(first=new)


def GEN(m: Mutants, h: Head) -> Head:
    """A new generation of chunk names."""
    return h._replace(gen=h.gen + 1)


def GC(m: Mutants, h: Head, gen: int) -> Head | str:
    """Raise the fence: chunks of an older gen can no longer be appended."""
    return NO if h.gc >= gen and "text.gc_not_monotone" not in m else h._replace(gc=gen)


# --- appends with a guard ---------------------------------------------------------------------------------------------
def EPOCH(m: Mutants, it: Named) -> Named:
    """A new life of a named producer."""
    return it._replace(epoch=it.epoch + 1)


def NAME(m: Mutants, it: Named, epoch: int, seq: int, id: str, page: int) -> Named | str:
    """A named producer's batch, if the life is the newest and the batch the next."""
    if it.epoch != epoch and not m & {"named.epoch", "named.both"}:
        return NO
    if it.seq != seq - 1 and not m & {"named.seq", "named.both"}:
        return NO
    return Named(it.epoch, seq, id, page)


def READ(m: Mutants, it: Pipe, seq: int, position: int, id: str) -> Pipe | str:
    """A pipeline's batch and position, if seq is as seen."""
    return NO if it.seq != seq and "reader.seq" not in m else Pipe(it.seq + 1, position, id)


# --- groups -----------------------------------------------------------------------------------------------------------
def TAKE(m: Mutants, s: Shard, seen: Shard, me: str, life: str) -> Shard | str:
    """Take a shard with a higher epoch, if owner and epoch are as seen.  `life` is who really does."""
    if (s.owner, s.epoch) != (seen.owner, seen.epoch) and "take.seen" not in m:
        return NO
    return Shard(me, s.epoch + 1, s.position)


def COMMIT(m: Mutants, s: Shard, me: str, epoch: int, seen: int, position: int, life: str) -> Shard | str:
    """Move a group's position, if I own it in this epoch and it is as seen."""
    if s.owner != me and "commit.owner" not in m:
        return NO
    if s.epoch != epoch and "commit.epoch" not in m:
        return NO
    if s.position != seen and "text.commit_without_position" not in m:
        return NO
    return s._replace(position=position)


def RELEASE(m: Mutants, s: Shard, me: str, epoch: int) -> Shard | str:
    """Give a shard back, if I own it in this epoch."""
    return NO if (s.owner, s.epoch) != (me, epoch) else s._replace(owner=None)


def DRAIN(m: Mutants, position: int | None, seen: int, new: int) -> int | str:
    """Move a group's position over one partition; its leases are another scenario's."""
    return NO if (position or 0) != seen else new


def DO(m: Mutants, done: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    """What a transactional handler writes of its own."""
    return done + tuple(range(start, end))
