"""Actors of a consumer group under the simulator, and what must hold after each of their steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tailrace.coordination.lease import NOBODY, HeldLease, new_number
from tailrace.errors import Fenced, TimedOut, Unavailable
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.groups.member import PartitionMember
from tailrace.log.groups.prefetch import ConsumerSettings, Inbox
from tailrace.log.topic import as_records
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Append, Item, Key, Put, Update
from tailrace.testing import Life, Simulation, Violation

PARTITIONS, EACH, TTL = 2, 3, 0.1
ALL = [(q, n) for q in range(PARTITIONS) for n in range(EACH)]


def new_log() -> TopicLog:
    return TopicLog("topic", "t0", 65536, True)


def shared() -> Group:
    return Group("group", new_log(), PARTITIONS)


def prepare(sim: Simulation) -> None:
    """A topic with some records in each partition, and somewhere for handlers to write."""
    sim.table.write(heads.new_head("t0", PARTITIONS))
    log = new_log()
    for n in range(EACH):
        buffer = Buffer(PARTITIONS, 1000)
        for q in range(PARTITIONS):
            buffer.add(None, b"%d" % n, n, partition=q)
        sim.do(commit([sim.do(place(log, buffer.encode("none")))]))
    for q in range(PARTITIONS):
        sim.table.write(Put(effect(q), {"done": []}, (Absent(),)))
    sim.ghosts |= {"holder": {}, "seen": {}, "handled": [], "eager": False}


def effect(partition: int) -> Key:
    return Key("effect", partition)


def finished(group: Group) -> Steps[bool]:
    shards = yield from groups.shards(group)
    return len(shards) == PARTITIONS and all(item["position"] == EACH for item in shards.values())


# -- a transactional handler: what it does and how far it has come are one write
def transactional(sim: Simulation, adopts: bool = False) -> Callable[[Life], Steps[None]]:
    def steps(life: Life) -> Steps[None]:
        number = new_number(life.rng.getrandbits) if not adopts else sum(life.actor.encode())
        group = shared()
        member = PartitionMember(group, number, ttl=TTL, wall=lambda: 0.0)
        yield from member.join("earliest")
        if adopts:
            yield from adopt(sim, life, member)
        while not (yield from finished(group)):
            yield from member.beat()
            balance = yield from member.balance()
            for q in balance.over:
                yield from member.release(q)
            for q in list(member.held):
                yield from handle(life, member, q)
            yield from calls.pause(2)
        yield from member.leave()

    return steps


def handle(life: Life, member: PartitionMember, q: int) -> Steps[None]:
    """One record; a life that gets no answer may give up, and stop cleanly with its commit still on the way."""
    at = member.positions[q]
    if at == EACH:
        return
    done = Update(effect(q), (Append("done", [[at, life.name, member.held[q].epoch]]),))
    try:
        yield from member.commit_with(q, at + 1, [done], patience=life.rng.choice((0, 60)))
    except (TimedOut, Unavailable):
        yield from member.release(q)
    except Fenced:
        return


def adopt(sim: Simulation, life: Life, member: PartitionMember) -> Steps[None]:
    """What goes wrong where two lives share a number: the second goes on with what the first holds."""
    for q, item in (yield from groups.shards(member.group)).items():
        if item["owner"] == member.number:
            member.held[q], member.positions[q] = (
                HeldLease(member.group.shard(q), member.number, item["epoch"]),
                item["position"],
            )
            sim.ghosts["holder"][q] = life.name


def exactly_once(sim: Simulation) -> None:
    """Each position is handled once, in order, by whoever holds the lease at that moment, under its epoch."""
    for q in range(PARTITIONS):
        shard = sim.table.items.get(shared().shard(q))
        if shard is None:
            continue
        note_holder(sim, q, shard)
        done = sim.table.items[effect(q)]["done"]
        if [at for at, *_ in done] != list(range(len(done))):
            raise Violation("a record handled twice, skipped or out of order", q, done)
        if shard["position"] != len(done):
            raise Violation("a position and what was done disagree", q, shard["position"], done)
        new = done[sim.ghosts["seen"].get(q, 0) :]
        if any((name, epoch) != (sim.ghosts["holder"].get(q), shard["epoch"]) for _, name, epoch in new):
            raise Violation("a commit by a past owner was accepted", q, new, dict(shard), sim.ghosts["holder"].get(q))
        sim.ghosts["seen"][q] = len(done)


def note_holder(sim: Simulation, q: int, shard: Item) -> None:
    """Remember whose write made a lease what it is."""
    state = (shard["owner"], shard["epoch"])
    before = sim.ghosts.setdefault("states", {}).get(q)
    if state == before:
        return
    if before is not None and state[1] < before[1]:
        raise Violation("an epoch went back", q, before, state)
    sim.ghosts["states"][q] = state
    what, who = sim.history[-1][0]
    sim.ghosts["holder"][q] = None if state[0] == NOBODY else who[0] if what == "lands" else who


# -- a plain handler, behind the inbox that consumers use
def plain(sim: Simulation, pauses: int = 0) -> Callable[[Life], Steps[None]]:
    """One life with its three loops side by side: they share an inbox, and take turns at each call.

    It comes after some pauses."""

    def steps(life: Life) -> Steps[None]:
        for _ in range(pauses):
            yield from calls.pause(2)
        yield from with_inbox(sim, life, shared(), keeps, handles)

    return steps


def with_inbox(
    sim: Simulation,
    life: Life,
    group: Group,
    keeps: Callable[[Simulation, Inbox, threading.Event], Steps[None]],
    handles: Callable[[Simulation, Life, Inbox, threading.Event], Steps[None]],
) -> Steps[None]:
    """A member from its joining to its leaving, with its three loops side by side."""
    member = PartitionMember(group, new_number(life.rng.getrandbits), ttl=TTL, wall=lambda: 0.0)
    yield from member.join("earliest")
    auto = ConsumerSettings(
        ttl=TTL, commit_interval=life.rng.choice((0.0, 0.02)), prefetch=life.rng.choice((1, 100_000))
    )
    inbox = Inbox(member, auto, threading.Event(), threading.Event(), threading.Event())
    over = threading.Event()
    yield from together(life, keeps(sim, inbox, over), fetches(inbox, over), handles(sim, life, inbox, over))
    yield from inbox.leave()


def together(life: Life, *loops: Steps[None]) -> Steps[None]:
    """Steps side by side, as threads would take them: whose call is made next is drawn."""
    calls_of = {loop: next(loop) for loop in loops}
    while calls_of:
        loop = life.rng.choice(list(calls_of))
        resume, answer = loop.send, None
        try:
            answer = yield calls_of[loop]
        except Exception as error:
            resume, answer = loop.throw, error
        try:
            calls_of[loop] = resume(answer)  # type: ignore[arg-type]
        except StopIteration:
            del calls_of[loop]


def keeps(sim: Simulation, inbox: Inbox, over: threading.Event) -> Steps[None]:
    while not (yield from finished(inbox.member.group)):
        yield from inbox.member.beat()
        if sim.ghosts["eager"]:
            inbox._next_look = 0.0
        with contextlib.suppress(TimedOut, Unavailable):
            yield from inbox.keep()
        yield from calls.pause(1)
    over.set()


def fetches(inbox: Inbox, over: threading.Event) -> Steps[None]:
    while not over.is_set():
        if not inbox.full:
            yield from inbox.fetch()
        yield from calls.pause(0)


def handles(sim: Simulation, life: Life, inbox: Inbox, over: threading.Event) -> Steps[None]:
    while not over.is_set():
        yield from calls.pause(0)
        inbox.finish()
        fetched = inbox.take()
        for record in as_records("topic", fetched) if fetched is not None else ():
            inbox.current = record
            held = inbox._held.get(record.partition)
            epoch = held.epoch if held is not None else None
            yield from calls.pause(0)
            sim.ghosts["handled"].append((life.name, epoch, record.partition, record.offset))
            if inbox.interrupted:
                break


def at_least_once(sim: Simulation) -> None:
    """A position never goes back, nor past what was handled; each holder handles its records in order."""
    handled: list[Any] = sim.ghosts["handled"]
    for q in range(PARTITIONS):
        shard = sim.table.items.get(shared().shard(q))
        if shard is None:
            continue
        if shard["position"] < sim.ghosts["seen"].get(q, 0):
            raise Violation("a position went back", q, sim.ghosts["seen"][q], shard["position"])
        sim.ghosts["seen"][q] = shard["position"]
        missed = set(range(shard["position"])) - {n for _, _, p, n in handled if p == q}
        if missed:
            raise Violation("committed, and never handled", q, missed)
    by_holder: dict[Any, list[int]] = {}
    for life, epoch, q, n in handled:
        by_holder.setdefault((life, epoch, q), []).append(n)
    for holder, offsets in by_holder.items():
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            raise Violation("a holder's records are not in order", holder, offsets)


def all_handled(sim: Simulation) -> None:
    if {(q, n) for _, _, q, n in sim.ghosts["handled"]} != set(ALL):
        raise Violation("a record was never handled", sorted(sim.ghosts["handled"]))


def handled_once(sim: Simulation) -> None:
    if sorted((q, n) for _, _, q, n in sim.ghosts["handled"]) != ALL:
        raise Violation("without any fault, a record was handled twice or not at all", sim.ghosts["handled"])
