"""Writers: the actors that append.  Each yields one request at a time, as the code to be built does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.model.items import (
    CHILD,
    FULL,
    GONE,
    HEAD,
    NAMED,
    PARTITIONS,
    READER,
    SEALED,
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
    must,
    plus,
)
from tests.model.rules import APPEND, EPOCH, NAME, OPEN, READ, ROLL_PAGE, SEAL, TO_CHILD
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
    """APPEND of one chunk without a name.  Gives (offsets, GONE or SEALED; the newest head; next n).

    `doubt` is the page at which an attempt of this id had no answer.  The order in which the newest head is asked is
    the protocol: in ids? in doubt and its page closed: LOOK; sealed? fenced? full? else again."""
    if head.sealed and "grow.append_to_sealed" not in w.m:
        return SEALED, head, n
    entry, n = yield from put_chunk(w, me, n, records, head.gen)
    doubt: int | None = None
    lost = False
    while True:
        page = head.page
        answer = yield write((APPEND, HEAD, page, entry))
        if answer is TIMEOUT:
            doubt, lost, head = page, True, (yield get(HEAD))
        elif answer.ok:
            head = answer.items[0]
            return {q: head.nx[q] - count for q, count in entry.runs}, head, n
        else:
            head = answer.items[0]
        if answer is TIMEOUT and "text.give_up" in w.m:
            return None, head, n
        if "text.always_look" in w.m:
            doubt = page
        if entry.id in head.ids:
            return offsets_in(head.e, head.base, entry.id), head, n
        fenced = head.gc > entry.gen
        if doubt is not None and head.page > doubt and not (fenced and "text.gc_before_page" in w.m):
            found = yield from look(w, doubt, entry.id, entry.gen, head)
            if found is GONE:
                w.truth.sent[me] = doubt if lost else -1
            if found is not None:
                return found, head, n
            doubt = None
        if head.sealed:
            return SEALED, head, n
        if fenced:
            doubt, lost = None, False
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
    """Sends a record to each of these partitions, batch after batch; in the child once the topic is sealed."""

    def run(w: World, me: str) -> Steps:
        head, n = (yield get(HEAD)), 0
        for number, partitions in enumerate(batches):
            records: Records = tuple((q, ((me, number),)) for q in partitions)
            found, head, n = yield from commit(w, me, head, n, records)
            if found is GONE:
                check_unknown(w, me)
            elif found is SEALED:
                record = records[0][1][0]
                while record not in ((yield get(CHILD)) or ()):
                    yield write((TO_CHILD, CHILD, record))
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
    """SEAL: a roll that seals, and the child opened, in one transaction."""
    while not (head := (yield get(HEAD))).sealed:
        page = ((ROLL_PAGE, page_key(head.page), head.as_page(v=1)),)
        yield write(*(() if "text.seal_flag_only" in w.m else page), (SEAL, HEAD, head), (OPEN, CHILD))


def drainer(w: World, me: str) -> Steps:
    """A group over parent and child: the child only once the parent is sealed and read to its end."""
    got: list[Any] = []
    position = 0
    while True:
        head = yield get(HEAD)
        end = head.nx[0]
        if position < end:
            got += w.truth.log[0][position:end]
            position = end
        elif head.sealed or "grow.child_early" in w.m:
            got += [record for record in (yield get(CHILD)) or () if record not in got]
        in_order = all(a[1] < b[1] for i, b in enumerate(got) for a in got[:i] if a[0] == b[0])
        must(in_order, "order of a key broken by growing")
        if w.fair and not w.busy(but="drainer") and len(got) == sum(map(len, w.truth.log)) + len(w.items[CHILD]):
            return
        yield IDLE


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
    entry, n = yield from put_chunk(w, me, n, records, head.gen)
    mine = {entry.id}
    while True:
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
    """Answer a batch that is committed, with its offsets while its page exists (it may not show yet)."""
    found = None
    if item.seq == seq:
        found = yield from look(w, item.page, item.id or "", -1, head)
        while found is None:
            head = yield get(HEAD)
            found = yield from look(w, item.page, item.id or "", -1, head)
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
