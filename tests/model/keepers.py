"""Keepers: the actors that roll, clean, merge, retain and read; and the members of a group."""

from __future__ import annotations

from tests.model.items import (
    EFFECT,
    FORGOTTEN,
    HEAD,
    PARTITIONS,
    SHARD,
    TIMEOUT,
    Page,
    Record,
    Records,
    Shard,
    must,
    plus,
)
from tests.model.rules import (
    CHECK_GC,
    COMMIT,
    DO,
    DROP,
    FIRST,
    FLOOR,
    GC,
    GEN,
    MERGE,
    RELEASE,
    TAKE,
    WIPE,
)
from tests.model.world import IDLE, LIST, Make, Steps, World, after, get, page_key, roll, upto, write
from tests.model.writers import put_chunk


def roller(w: World, me: str, times: int = 2) -> Steps:
    """ROLL, whether or not the head is full."""
    for _ in range(times):
        head = yield get(HEAD)
        if head.e:
            yield roll(head)


# --- CLEAN ------------------------------------------------------------------------------------------------------------
def cleaner(w: World, me: str) -> Steps:
    """CLEAN: a new gen; the fence up to it, confirmed; only then the references; then what nobody refers to goes."""
    answer = yield write((GEN, HEAD))
    gen = ((yield get(HEAD)) if answer is TIMEOUT else answer.items[0]).gen
    used = set()
    if "clean.refs_before_gc" in w.m:
        used = yield from references(w)
    listed = yield LIST
    if "clean.no_fence" not in w.m:
        yield from fence(w, gen)
    if not w.m & {"clean.delete_without_refs", "clean.refs_before_gc"}:
        used = yield from references(w)
    for name in listed:
        if (name[0] < gen or "clean.any_gen" in w.m) and name not in used:
            yield "del", name


def fence(w: World, gen: int) -> Steps:
    """gc = gen, confirmed: a fence without an answer may not be there yet."""
    yield write((GC, HEAD, gen))
    if "clean.gc_unconfirmed" in w.m:
        return
    while (yield get(HEAD)).gc < gen:
        yield write((GC, HEAD, gen))


def references(w: World) -> Steps:
    """The head's references, then pages downward to `first`, all joining; else a page does not show yet: again."""
    if "clean.pages_before_head" in w.m:
        return (yield from references_upwards(w))
    used = set()
    joining = "text.refs_without_join" not in w.m
    while True:
        head = yield get(HEAD)
        used |= {entry.where for entry in head.e}
        number = head.page - 1
        while number >= head.first:
            page = yield upto(number)
            if page is None or (joining and page.last != number):
                break
            used |= {entry.where for entry in page.e}
            number = page.first - 1
        if number < head.first or not joining:
            return used


def references_upwards(w: World) -> Steps:
    """The wrong way: pages up to where the head once was, then the head as it now is."""
    used = set()
    top, number = (yield get(HEAD)).page, -1
    while number < top and (page := (yield after(number))) is not None:
        used |= {entry.where for entry in page.e}
        number = page.last
    return used | {entry.where for entry in (yield get(HEAD)).e}


# --- MERGE ------------------------------------------------------------------------------------------------------------
def merger(start: int, times: int = 2) -> Make:
    """MERGE: two neighbouring pages, from the start'th on, into one page and one object."""

    def run(w: World, me: str) -> Steps:
        for n in range(times):
            head, a = (yield get(HEAD)), (yield after(-1))
            for _ in range(start):
                a = a and (yield after(a.last))
            b = a and (yield from neighbour(w, a))
            if not b:
                continue
            joined = yield from join(w, a, b, head.gc)
            if joined is None:
                return
            records, made_of = joined
            entry, _ = yield from put_chunk(w, me, 10 * n, records, head.gen)
            entry = entry._replace(made_of=() if "text.merge_forgets_ids" in w.m else made_of)
            yield from merge(w, entry.gen, a, b, Page(a.first, b.last, a.base, (entry,), a.v + 1))

    return run


def neighbour(w: World, a: Page) -> Steps:
    """The page after this one, if it joins: one between them may not show yet."""
    b = yield after(a.last)
    if b and "text.merge_two_steps" in w.m:
        return (yield after(a.first))
    if b and b.first != a.last + 1 and "text.merge_without_join" not in w.m:
        return None
    return b


def join(w: World, a: Page, b: Page, gc: int) -> Steps:
    """(records, what they are made of) of two pages; None if another has merged or removed them.

    The ids of chunks behind the fence are forgotten, and the entry says so."""
    of: list[tuple[Record, ...]] = [()] * PARTITIONS
    made_of: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    for entry in a.e + b.e:
        chunk: Records | None = yield "obj", entry.where
        if chunk is None:
            return None
        for q, records in chunk:
            of[q] += records
        made_of += (entry.made_of or ((entry.id, entry.runs),)) if entry.gen >= gc else ((FORGOTTEN, entry.runs),)
    return tuple((q, records) for q, records in enumerate(of) if records), made_of


def merge(w: World, gen: int, a: Page, b: Page, new: Page) -> Steps:
    """One transaction: the fence, the first page if as read, the other page away if as read."""
    put = (CHECK_GC, HEAD, gen), (MERGE, page_key(a.first), a.v, new)
    drop = (DROP, page_key(b.first), b.v)
    if "text.merge_two_steps" in w.m:
        answer = yield write(*put)
        if answer is not TIMEOUT and answer.ok:
            yield write((WIPE, page_key(b.first)))
    elif "merge.delete_first" in w.m:
        answer = yield write(drop)
        if answer is not TIMEOUT and answer.ok:
            yield write(*put)
    else:
        yield write(*put, drop)


# --- FLOOR ------------------------------------------------------------------------------------------------------------
def retention(w: World, me: str, times: int = 2) -> Steps:
    """FLOOR: the floor up to the end of the oldest page, confirmed; then that page; then its objects."""
    for _ in range(times):
        page = yield after(-1)
        if page is None:
            continue
        if "retain.page_first" not in w.m:
            yield write((FLOOR, HEAD, page.end))
            floor = (yield get(HEAD)).floor
            if any(f < end for f, end in zip(floor, page.end, strict=True)):
                continue
        answer = yield write((FIRST, HEAD, page.first, page.last + 1), (DROP, page_key(page.first), page.v))
        if answer is not TIMEOUT and answer.ok:
            for entry in page.e:
                yield "del", entry.where


# --- reading ----------------------------------------------------------------------------------------------------------
class Place:
    """Where a reader is.  `due` is the offset after the last record it delivered; `gone` an object that was missing."""

    __slots__ = ("due", "gone", "page", "position")

    def __init__(self) -> None:
        self.position = self.due = 0
        self.page: Page | None = None
        self.gone: tuple[object, int] | None = None


def reader(q: int) -> Make:
    """Follows one partition, keeping the page it is in; a page or object that is gone sends it back to seek."""

    def run(w: World, me: str) -> Steps:
        at = Place()
        while True:
            head = yield get(HEAD)
            if at.position < head.floor[q]:
                at.position, at.page = head.floor[q], None
            must(at.position == at.due or at.position <= head.floor[q], "reader skipped records")
            if at.position == head.nx[q]:
                if w.fair and not w.busy(but="read"):
                    return
                yield IDLE
                continue
            if at.position >= head.base[q]:
                at.page = head.as_page(v=0)
            elif at.page is not None:
                yield from next_page(w, at, q)
            if at.page is None:
                yield from seek(at, q, head.page - 1)
            if at.page is not None:
                yield from deliver(w, at, at.page, q)
            if at.page is not None and at.page.first == head.page:
                at.page = None

    return run


def next_page(w: World, at: Place, q: int) -> Steps:
    """The page after this one, unless what lies between was merged into an older one."""
    assert at.page is not None
    if "text.next_number" in w.m:
        at.page = (yield get(page_key(at.page.first + 1))) or at.page
        return
    at.page = yield after(at.page.last)
    if at.page is not None and at.page.base[q] > at.position:
        if "read.no_base_check" in w.m:
            at.position = at.page.base[q]
        else:
            at.page = None


def seek(at: Place, q: int, number: int) -> Steps:
    """Downwards to the page that begins at or before the position."""
    at.page = yield upto(number)
    while at.page is not None and at.page.base[q] > at.position:
        at.page = yield upto(at.page.first - 1)


def deliver(w: World, at: Place, page: Page, q: int) -> Steps:
    """The records of a page from the position on.  An object that is missing twice on the same page is damage."""
    base = page.base
    for entry in page.e:
        count = dict(entry.runs).get(q, 0)
        if base[q] <= at.position < base[q] + count:
            chunk = yield "obj", entry.where
            floor = w.head.floor[q]
            if chunk is not None:
                must(at.position == at.due or at.position <= floor, "reader skipped records")
                for record in dict(chunk)[q][at.position - base[q] :]:
                    right = w.truth.log[q][at.position] == record
                    must(right, "reader sees a record that is not the log's at this offset")
                    at.position = at.due = at.position + 1
            elif "read.skip_missing" in w.m:
                at.position = base[q] + count
            else:
                again = at.gone == (entry.where, page.v)
                must(not again or floor > at.position, "bytes missing though the page was read again")
                at.gone, at.page = (entry.where, page.v), None
                return
        base = plus(base, entry.runs)


# --- groups -----------------------------------------------------------------------------------------------------------
MESSAGES = 3


def member(w: World, me: str) -> Steps:
    """SHARD: a member with a transactional handler.  Suspicion of a live owner may be wrong, twice a schedule."""
    name = me[:7] if "text.same_member_id" in w.m else me
    while (shard := (yield get(SHARD))).position < MESSAGES:
        held = yield from take(w, name, me, shard)
        if held is not None:
            yield from handle(w, name, me, held)


def take(w: World, name: str, me: str, seen: Shard) -> Steps:
    """The shard, if it could be taken; also when I own it and do not hold it: a take of mine had no answer."""
    alive = {actor.me for actor in w.busy()}
    if seen.owner == name and "text.own_take_ignored" in w.m:
        yield IDLE
        return None
    if seen.owner == name and "text.same_member_id" in w.m:
        w.truth.holder = (me, seen.epoch)
        return seen
    if seen.owner not in (None, name) and seen.owner in alive and (w.fair or not w.doubts):
        yield IDLE
        return None
    if seen.owner in alive:
        w.doubts -= 1
    answer = yield write((TAKE, SHARD, seen, name, me))
    return answer.items[0] if answer is not TIMEOUT and answer.ok else None


def handle(w: World, name: str, me: str, held: Shard) -> Steps:
    """Message after message: its effect and the position, in one transaction, until someone else has the shard."""
    epoch = held.epoch
    while held.position < MESSAGES:
        at = held.position
        answer = yield write((COMMIT, SHARD, name, epoch, at, at + 1, me), (DO, EFFECT, at, at + 1))
        if answer is TIMEOUT:
            held = yield get(SHARD)
            if (held.owner, held.epoch) != (name, epoch):
                return
            if held.position == 1:  # it stops cleanly, with its commit still in flight
                yield write((RELEASE, SHARD, name, epoch))
                return
        elif not answer.ok:
            return
        else:
            held = answer.items[0]
