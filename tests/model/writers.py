"""Writers: the actors that append.  Each yields one request at a time, as the code to be built does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.model.items import (
    FULL,
    GONE,
    HEAD,
    NAMED,
    PARTITIONS,
    READER,
    TIMEOUT,
    Entry,
    Head,
    Key,
    Named,
    Offsets,
    Page,
    Pipe,
    Records,
    Where,
    drain,
    moved,
    must,
    plus,
)
from tests.model.rules import APPEND, DRAIN, EPOCH, GROW, NAME, READ, ROLL_PAGE
from tests.model.world import IDLE, Make, Steps, World, get, page_key, roll, upto, write


# --- pieces -----------------------------------------------------------------------------------------------------------
def put_chunk(w: World, me: str, n: int, records: Records, gen: int, keep: Where | None = None) -> Steps:
    """Bytes first, under a new name; a put without an answer is left for cleaning.  Gives (entry, next n)."""
    while True:
        where = keep or (gen, me, n)
        n += 1
        if (yield "put", where, records) is not TIMEOUT:
            runs = tuple((q, len(of_q)) for q, of_q in records)
            return Entry(f"{where[1]}.{where[2]}", where, gen, runs), n


def offsets_in(entries: Sequence[Entry], base: Offsets, id: str) -> dict[int, int] | None:
    """The first offset in each partition of a chunk on a page, merged or not; None if it is not there."""
    for entry in entries:
        for made_id, runs in entry.made_of or ((entry.id, entry.runs),):
            if made_id == id:
                return {q: base[q] for q, _ in runs}
            base = plus(base, runs)
    return None


def look(w: World, page: int, id: str, gen: int, head: Head) -> Steps:
    """LOOK: a chunk that was sent to this page: its offsets; None if it is not there and never will be; or GONE.

    Of a chunk behind the fence a merged page may have forgotten the id: then nobody can tell any more."""
    if page == head.page:
        return offsets_in(head.e, head.base, id)
    by_number = "text.look_by_number" in w.m
    while True:
        found: Page | None = yield get(page_key(page)) if by_number else upto(page)
        if found is not None and found.last >= page:
            offsets = offsets_in(found.e, found.base, id)
            if offsets is None and found.forgot and "look.forgot" not in w.m and (yield get(HEAD)).gc > gen:
                return GONE
            return offsets
        if by_number or "text.missing_is_gone" in w.m or (yield get(HEAD)).first > page:
            return GONE


def make_room(w: World, head: Head) -> Steps:
    """ROLL by whoever meets a full head; gives the newest head."""
    answer = yield roll(head)
    return answer.items[1] if answer is not TIMEOUT else (yield get(HEAD))


# --- producers --------------------------------------------------------------------------------------------------------
def commit(w: World, me: str, head: Head, n: int, records: Records) -> Steps:
    """APPEND of one chunk without a name.  Gives (offsets or GONE; the newest head; next n; the records as placed).

    `doubt` is the page at which an attempt of this id had no answer.  The order in which the newest head is asked is
    the protocol: in ids? in doubt and its page closed: LOOK; grown? fenced? full? else again."""
    made = head.cut
    records = moved(records) if made else records
    entry, n = yield from put_chunk(w, me, n, records, head.gen)
    doubt: int | None = None
    lost = False
    while True:
        page, answer = head.page, None
        if head.cut == made or w.m & {"grow.old_partitions", "text.append_after_roll"}:
            answer = yield write((APPEND, HEAD, page, entry))
        if answer is TIMEOUT:
            doubt, lost, head = page, True, (yield get(HEAD))
        elif answer is not None and answer.ok:
            head = answer.items[0]
            return {q: head.nx[q] - count for q, count in entry.runs}, head, n, records
        elif answer is not None:
            head = answer.items[0]
        if answer is TIMEOUT and "text.give_up" in w.m:
            return None, head, n, records
        if "text.always_look" in w.m:
            doubt = page
        if entry.id in head.ids:
            return offsets_in(head.e, head.base, entry.id), head, n, records
        fenced, grown = head.gc > entry.gen, head.cut != made and "grow.old_partitions" not in w.m
        hasty = (fenced and "text.gc_before_page" in w.m) or (grown and "text.grown_before_page" in w.m)
        if doubt is not None and head.page > doubt and not hasty:
            found = yield from look(w, doubt, entry.id, entry.gen, head)
            if found is GONE:
                w.truth.sent[me] = doubt if lost else -1
            if found is not None:
                return found, head, n, records
            doubt = None
        if fenced or grown:
            doubt, lost = None, False
            records, made = moved(records) if grown else records, head.cut
            entry, n = yield from put_again(w, me, n, records, head.gen, entry)
        elif head.b >= FULL:
            head = yield from make_room(w, head)


def put_again(w: World, me: str, n: int, records: Records, gen: int, entry: Entry) -> Steps:
    """Behind the fence: a new put, a new name, a new id.  (The old one can never land: gc only rises.)"""
    if "reput.same_name" not in w.m:
        return (yield from put_chunk(w, me, n, records, gen))
    entry, n = yield from put_chunk(w, me, n, records, gen, entry.where)
    return entry._replace(gen=gen), n


def producer(batches: Sequence[tuple[int, ...]]) -> Make:
    """Sends a record to each of these partitions, batch after batch; once the topic has grown, to the other one."""

    def run(w: World, me: str) -> Steps:
        head, n = (yield get(HEAD)), 0
        for number, partitions in enumerate(batches):
            records: Records = tuple((q, ((me, number),)) for q in partitions)
            found, head, n, records = yield from commit(w, me, head, n, records)
            if found is GONE:
                check_unknown(w, me)
            elif found:
                w.truth.acknowledge(records, found)

    return run


def check_unknown(w: World, me: str) -> None:
    """OutcomeUnknown may be said only after a timeout, and only if retention took the page or a merge forgot."""
    page = w.truth.sent.get(me, -1)
    must(page != -1, "OutcomeUnknown although no attempt is in doubt")
    covering = [p for p in w.items.values() if isinstance(p, Page) and p.first <= page <= p.last]
    must(all(p.forgot for p in covering), "OutcomeUnknown although the page is there, merged")


# --- growing ----------------------------------------------------------------------------------------------------------
def grower(w: World, me: str) -> Steps:
    """GROW: a roll that says where the partitions before end, in one transaction."""
    while not (head := (yield get(HEAD))).cut:
        page = ((ROLL_PAGE, page_key(head.page), head.as_page(v=1)),)
        yield write(*(() if "text.grow_flag_only" in w.m else page), (GROW, HEAD, head))


def drainer(q: int) -> Make:
    """A group's member for one partition: beyond the cut only once the group has committed every partition up to it."""

    def run(w: World, me: str) -> Steps:
        while True:
            position, head = (yield get(drain(q))) or 0, (yield get(HEAD))
            end = head.nx[q]
            if head.cut and "grow.early" not in w.m:
                for other, at in enumerate(head.cut[1]):
                    if ((yield get(drain(other))) or 0) < at:
                        end = min(end, head.cut[1][q])
            if position < end:
                w.truth.handle(w.truth.log[q][position])
                while ((yield get(drain(q))) or 0) == position:
                    yield write((DRAIN, drain(q), position, position + 1))
            elif w.fair and not w.busy(but="drainer") and position == len(w.truth.log[q]):
                return
            else:
                yield IDLE

    return run


# --- appends with a guard ---------------------------------------------------------------------------------------------
def guarded(
    w: World,
    me: str,
    head: Head,
    n: int,
    records: Records,
    key: Key,
    guard: Callable[[str, int], tuple[Any, ...]],
    seen: Named | Pipe,
) -> Steps:
    """APPEND in one transaction with a guard item, which alone says whether it happened.

    Gives (won, the guard item, the newest head, next n)."""
    made = head.cut
    records = moved(records) if made else records
    entry, n = yield from put_chunk(w, me, n, records, head.gen)
    mine = {entry.id}
    while True:
        if head.cut != made:
            records, made = moved(records), head.cut
            entry, n = yield from put_chunk(w, me, n, records, head.gen)
            mine.add(entry.id)
        answer = yield write((APPEND, HEAD, head.page, entry), guard(entry.id, head.page))
        if answer is TIMEOUT:
            item, head = (yield get(key)), (yield get(HEAD))
        else:
            head, item = answer.items
        won = item.id in mine
        if "text.reader_without_id" in w.m and key == READER:
            won = item.seq == seen.seq + 1 and (answer is TIMEOUT or answer.ok)
        if won or item != seen:
            return won, item, head, n
        if head.gc > entry.gen:
            entry, n = yield from put_chunk(w, me, n, records, head.gen)
            mine.add(entry.id)
        elif head.b >= FULL:
            head = yield from make_room(w, head)


def named(w: World, me: str, batches: int = 3) -> Steps:
    """NAMED: the caller numbers its batches; a new life raises the epoch and sends the last batch again."""
    while (answer := (yield write((EPOCH, NAMED)))) is TIMEOUT:
        pass
    item, head, n = answer.items[0], (yield get(HEAD)), 0
    epoch = item.epoch
    for seq in range(max(1, w.truth.sent.get("named", 0)), batches + 1):
        records: Records = ((seq % PARTITIONS, (("named", seq),)),)
        while True:
            if item.epoch != epoch and not w.m & {"named.epoch", "named.both"}:
                return
            if item.seq >= seq:
                head = yield from answer_again(w, item, head, seq, records)
                break
            guard = partial(name_batch, epoch, seq)
            _, item, head, n = yield from guarded(w, me, head, n, records, NAMED, guard, item)
        w.truth.sent["named"] = max(w.truth.sent.get("named", 0), seq)


def name_batch(epoch: int, seq: int, id: str, page: int) -> tuple[Any, ...]:
    """The guard of a named producer's batch."""
    return NAME, NAMED, epoch, seq, id, page


def answer_again(w: World, item: Named, head: Head, seq: int, records: Records) -> Steps:
    """Answer a batch that is committed, with its offsets while its page exists (it may not show yet).

    Which partitions it was made for follows from its page, not from what the topic has now."""
    found, head = None, (yield get(HEAD))
    if item.seq == seq:
        found = yield from look(w, item.page, item.id or "", -1, head)
        while found is None:
            head = yield get(HEAD)
            found = yield from look(w, item.page, item.id or "", -1, head)
        records = moved(records) if head.cut and item.page >= head.cut[0] else records
    w.truth.acknowledge(records, None if found is GONE else found)
    return head


def pipeline(w: World, me: str, end: int = 4) -> Steps:
    """READER: a pipeline's position and data in one transaction.  Each life cuts its batches differently."""
    item, head, n, cut = (yield get(READER)), (yield get(HEAD)), 0, 1 + len(me) % 2
    at = item.position
    while at < end:
        to = min(end, at + cut)
        guard = partial(read_batch, item.seq, to)
        won, item, head, n = yield from guarded(w, me, head, n, source_records(at, to), READER, guard, item)
        at = to if won else item.position
        w.truth.confirmed = max(w.truth.confirmed, at)
        must(w.items[READER].position >= w.truth.confirmed, "the source was told more than is in the log")


def read_batch(seq: int, to: int, id: str, page: int) -> tuple[Any, ...]:
    """The guard of a pipeline's batch."""
    return READ, READER, seq, to, id


def source_records(start: int, end: int) -> Records:
    """What the source has between two positions, by partition."""
    of = [tuple(("source", n) for n in range(start, end) if n % PARTITIONS == q) for q in range(PARTITIONS)]
    return tuple((q, records) for q, records in enumerate(of) if records)
