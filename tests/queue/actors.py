"""Actors of a queue under the simulator, and what must hold after each of their steps.

A worker is the real `Consumer`, with its rounds and its handlers side by side as threads would take them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.lease import NOBODY, new_number
from tailrace.errors import Conflict, Fenced, OutcomeUnknown, StorageError
from tailrace.log import catalog
from tailrace.log.catalog import MAX_PARTITIONS
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.log.read.reader import Reader
from tailrace.log.topic import as_records
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.append import commit
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.placement import place
from tailrace.queue import delayed, replay, supervisor
from tailrace.queue.consumer import Consumer, QueueMember
from tailrace.queue.dedup import Duplicate, Once
from tailrace.queue.lanes import Entry
from tailrace.queue.settings import Settings, as_stored, queue_key
from tailrace.queue.shard import GROUP
from tailrace.queue.stats import stats
from tailrace.queue.transaction import AckTransaction
from tailrace.queue.window import Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Absent, Append, Key, Put, Update
from tailrace.testing import Life, Simulation, Violation
from tests.log.group_actors import together

SHARDS, GROWN, TTL, ATTEMPTS = 2, 5, 0.5, 4
ID, DEAD_ID = "t0", "d0"
FAILS, FLAKY, KILLS = b"fails", b"flaky", b"kills"
"""Keys of messages whose handler raises, raises once, or ends its process."""
SETTINGS = Settings(attempts=ATTEMPTS, backoff=0.01, max_backoff=0.02)


_joins = [True]
"""Whether the table at hand keeps small chunks in the same transaction."""


class Killed(Exception):
    """A handler has ended its process."""


def new_log(life: Life | None = None, id: str = ID, name: str = "q") -> TopicLog:
    log = TopicLog(name, id, 65536, _joins[0])
    if life is not None:
        log.new_id = lambda: f"{life.rng.getrandbits(96):024x}"
    return log


def shared(log: TopicLog | None = None) -> Group:
    return Group(GROUP, log or new_log(), SHARDS)


def prepare(sim: Simulation, keys: dict[int, list[bytes]]) -> None:
    """A queue with messages of these keys in its shards, a topic for dead letters, and somewhere to write effects."""
    _joins[0] = sim.table.joins_inline
    sim.table.write(heads.new_head(ID, SHARDS))
    sim.table.write(Put(queue_key(ID), {"settings": as_stored(Settings())}, (Absent(),)))
    sim.table.write(Put(catalog.topic_key("q"), {"id": ID, "partitions": SHARDS}, (Absent(),)))
    sim.table.write(heads.new_head(DEAD_ID, 1))
    for q, some in keys.items():
        for n, key in enumerate(some):
            push(sim, q, key, b"%d.%d" % (q, n))
    sim.do(groups.make(shared(), "earliest"))
    for q in range(GROWN):
        sim.table.write(Put(effect(q), {"done": []}, (Absent(),)))
    sim.ghosts |= {"handled": set(), "replayed": [], "done": {q: set() for q in range(GROWN)}, "busy": 0}
    sim.ghosts |= {
        "values": set(),
        "at_most_once": False,
        "paused": False,
        "exact": False,
        "pushers": 0,
        "lives": {},
        "v": {},
        "emitted": {},
    }


def push(sim: Simulation, q: int, key: bytes, value: bytes) -> None:
    buffer = Buffer(SHARDS, 1000)
    buffer.add(key, value, 0, partition=q)
    sim.do(commit([sim.do(place(new_log(), buffer.encode("none")))]))


def effect(q: int) -> Key:
    return Key("effect", q)


# -- workers
class How(NamedTuple):
    """How a worker works: as `queue.tail` can be told, and what its handlers do."""

    exact: bool = False
    """Its handler is transactional."""
    rounds: int | None = None
    """It leaves after so many."""
    hurries: bool = False
    """It does not wait for its handlers when it leaves."""
    acking: bool = True
    batch: int = 1
    """Messages that a handler gets at a time."""
    limit: bool = False
    """Handlers sometimes take longer than they may."""
    stalls: bool = False
    """Its rounds sometimes stand still, while its handlers and its beats go on."""


def worker(sim: Simulation, **how: Any) -> Callable[[Life], Steps[None]]:
    """A consumer that begins again when a handler has ended its process."""

    def steps(life: Life) -> Steps[None]:
        while True:
            try:
                yield from one_life(sim, life, How(**how))
                return
            except Killed:
                continue

    return steps


def one_life(sim: Simulation, life: Life, how: How) -> Steps[None]:
    log = new_log(life)
    member = QueueMember(shared(log), new_number(life.rng.getrandbits), ttl=TTL, wall=lambda: 0.0)
    sim.ghosts["lives"][member.number] = life.name
    yield from member.join("earliest")
    consumer = Consumer(
        log, member, SETTINGS, acking=how.acking, batch_size=life.rng.choice((1, 2, 3)), rng=life.rng,
        dead_log=lambda: new_log(life, DEAD_ID, "q-dead"), wall=sim.clock.monotonic,
    )  # fmt: skip
    over = [False]
    loops = [
        keeps(sim, life, consumer, over, how),
        beats(member, over),
        *(handles(sim, life, consumer, over, how) for _ in range(2)),
    ]
    yield from together(life, *loops)
    with contextlib.suppress(StorageError):
        yield from consumer.leave()


def keeps(sim: Simulation, life: Life, consumer: Consumer, over: list[bool], how: How) -> Steps[None]:
    done = 0
    while not over[0]:
        with contextlib.suppress(StorageError, Fenced, OutcomeUnknown):
            yield from consumer.round()
        done += 1
        leaves = how.rounds is not None and done >= how.rounds
        if not leaves and sim.finishing and not sim.ghosts["pushers"]:
            leaves = yield from finished(consumer.log)
        if leaves:
            consumer.stop()
            if how.hurries:
                with contextlib.suppress(StorageError):
                    yield from consumer.leave()
            over[0] = how.hurries or not consumer.desks
        yield from calls.pause(7 if how.stalls and life.rng.random() < 0.2 else 1)


def beats(member: QueueMember, over: list[bool]) -> Steps[None]:
    while not over[0]:
        yield from member.beat()
        yield from calls.pause(3)


def finished(log: TopicLog) -> Steps[bool]:
    head = yield from log.head()
    units = yield from groups.shards(shared(log))
    for item in (yield from replay.items(ID)).values():
        if item["position"] < item["until"]:
            return False
    if (yield from delayed.first_due(ID)) is not None:
        return False
    return len(units) == head.partitions and all(item["position"] == head.next[q] for q, item in units.items())


def handles(sim: Simulation, life: Life, consumer: Consumer, over: list[bool], how: How) -> Steps[None]:
    while not over[0]:
        yield from calls.pause(0)
        entries = consumer.take(how.batch, (yield from calls.now()))
        shards = [desk.shard for desk in consumer.desks.values()]
        if not all(entry.shard in shards for entry in entries):
            raise Violation("handed out from a shard that was given back", entries)
        if sim.ghosts["paused"] and any(owns(sim, entry) for entry in entries):
            raise Violation("handed out while paused", [(entry.partition, entry.offset) for entry in entries])
        for entry, run in [(entry, entry.run) for entry in entries]:
            if entry.tries >= ATTEMPTS and how.acking:
                consumer.give_up(entry, run, "its consumer disappeared")
                continue
            note(sim, entry)
            if entry.key == KILLS:
                raise Killed
            yield from calls.pause(0)
            if how.limit and entry.tries == 0 and life.rng.random() < 0.5:
                yield from too_late(consumer, entry, run)
            else:
                yield from end_of(sim, life, consumer, entry, run, how.exact)


def owns(sim: Simulation, entry: Entry) -> bool:
    """Whether the shard of a message is still its consumer's; else it is at work on what another has, too."""
    shard: Any = entry.shard
    return bool(shard.held.stands(sim.table.items[shard.held.key]))


def too_late(consumer: Consumer, entry: Entry, run: int) -> Steps[None]:
    """The time limit has given a handler up: its message is tried again, and its own end does not count."""
    consumer.fail(entry, run, "it took too long", now=(yield from calls.now()), after=0.0)
    for _ in range(12):
        yield from calls.pause(0)  # another handler may have it by now
    if consumer.ack(entry, run):
        raise Violation("a handler that took too long has acknowledged", entry.partition, entry.offset)


def note(sim: Simulation, entry: Entry) -> None:
    """What must hold when a handler begins: its key's earlier messages are not at work in the same desk."""
    place = (entry.partition, entry.offset)
    if (entry.value or b"").startswith(SERIES):
        earlier = [SERIES + b"%d" % n for n in range(int((entry.value or b"")[len(SERIES) :]))]
        if not set(earlier) <= sim.ghosts["values"]:
            raise Violation("the order of a key is broken where the queue has grown", entry.value, sim.ghosts["values"])
    if sim.ghosts["at_most_once"] and place in sim.ghosts["handled"]:
        raise Violation("handed out twice, though at most once", place)


def end_of(sim: Simulation, life: Life, consumer: Consumer, entry: Entry, run: int, exact: bool) -> Steps[None]:
    now = yield from calls.now()
    if entry.key == FAILS or (entry.key == FLAKY and entry.tries == 0 and entry.value and entry.value.endswith(b"0")):
        consumer.fail(entry, run, "ValueError: no", now=now)
        return
    place = (entry.partition, entry.offset)
    if entry.replayed:
        sim.ghosts["replayed"].append(place)
    sim.ghosts["handled"].add(place)
    sim.ghosts["values"].add(entry.value)
    if not exact or entry.replayed:
        consumer.ack(entry, run)
        return
    t = AckTransaction(None, {}, None, None)  # type: ignore[arg-type]
    t.write(Update(effect(entry.partition), (Append("done", [entry.offset]),)))
    try:
        yield from consumer.transact(entry, run, t)
    except (Fenced, StorageError, OutcomeUnknown, Conflict):
        consumer.fail(entry, run, "no answer", now=now, after=0.0)


# -- pushers and supervisors
def expected(sim: Simulation) -> Callable[[], None]:
    """Have workers stay until this actor is done; gives what says so, which it may say in each of its lives."""
    sim.ghosts["pushers"] += 1
    left = [1]

    def done() -> None:
        sim.ghosts["pushers"] -= left[0]
        left[0] = 0

    return done


def pushes(sim: Simulation, key: bytes, dedup: str | None, due: float | None) -> Callable[[Life], Steps[None]]:
    """Pushes a message once, with a dedup id or a delay; a second life pushes it again, if it has a dedup id."""
    done = expected(sim)

    def steps(life: Life) -> Steps[None]:
        log = new_log(life)
        token = f"{life.rng.getrandbits(62):x}"
        if due is not None and (life.number == 1 or dedup):
            message = {"id": token, "key": key, "value": key, "attributes": 0, "pushed": 0}
            also = []
            if dedup:
                message["dedup"] = dedup
                also = list(Once(log, [dedup], token, delayed=True).actions(0))
            at = int(due * 1000)
            with contextlib.suppress(Duplicate, OutcomeUnknown):
                if not (yield from delayed.delay(ID, message, at, life.rng, also)):
                    sim.ghosts["late"] = True
                else:
                    sim.ghosts["told"] = sim.ghosts.get("told", 0) + 1
        elif dedup:
            yield from log.head()
            buffer = Buffer(SHARDS, 1000)
            buffer.add(key, key, 0)
            placed = yield from place(log, buffer.encode("none"))
            with contextlib.suppress(Duplicate):
                yield from commit([placed], others=Once(log, [dedup], token))
        done()

    return steps


SERIES = b"series-"


def sends(sim: Simulation, count: int) -> Callable[[Life], Steps[None]]:
    """Pushes messages of one key, which a growth moves to a new shard; a second life pushes nothing."""
    done = expected(sim)

    def steps(life: Life) -> Steps[None]:
        log = new_log(life)
        for n in range(count if life.number == 1 else 0):
            yield from log.head()
            buffer = Buffer(log.partitions, 1000)
            buffer.add(b"key", SERIES + b"%d" % n, 0)
            yield from commit([(yield from place(log, buffer.encode("none")))])
        done()

    return steps


def grows(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Gives the queue more shards, as `rebalance` does."""
    done = expected(sim)

    def steps(life: Life) -> Steps[None]:
        log = new_log(life)
        yield from calls.pause(life.rng.randint(1, 8))
        yield from catalog.grow(log, GROWN)
        yield from groups.make(Group(GROUP, log, GROWN), "earliest")
        done()

    return steps


def sweeps(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Upkeep of delayed messages: moves the low mark, and removes marks."""

    def steps(life: Life) -> Steps[None]:
        for _ in range(3):
            yield from calls.pause(6)
            yield from delayed.sweep(ID, delayed.KEEP_MARKS_MS + int(sim.clock.monotonic() * 1000))

    return steps


def moves(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """A clock holder that does not know of another."""

    def steps(life: Life) -> Steps[None]:
        while (yield from delayed.first_due(ID)) is not None:
            with contextlib.suppress(StorageError, OutcomeUnknown):
                yield from delayed.move_due(new_log(life), 1000)

    return steps


def pauses(sim: Simulation, meanwhile: Callable[[Life], Steps[None]] | None = None) -> Callable[[Life], Steps[None]]:
    """Pauses the queue for a while, in which it may do something else, too."""

    def steps(life: Life) -> Steps[None]:
        begun = life.rng.randint(0, 3)
        for _ in range(60 if meanwhile is None else 0):
            if len(sim.ghosts["handled"]) >= begun:
                break
            yield from calls.pause(2)
        yield from supervisor.set_paused(shared(), True, TTL)
        sim.ghosts["paused"] = True
        if meanwhile is not None:
            yield from meanwhile(life)
        for _ in range(4 if meanwhile is None else 30):
            yield from calls.pause(2)
        sim.ghosts["paused"] = False
        yield from supervisor.set_paused(shared(), False)

    return steps


def toggles(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Pauses the queue and lets it go on at once, again and again."""

    def steps(life: Life) -> Steps[None]:
        for paused in (True, False, True, False):
            yield from supervisor.set_paused(shared(), paused, 0.0)

    return steps


def looks(sim: Simulation, before: int) -> Callable[[Life], Steps[None]]:
    """Looks at the stats again and again: what a pusher was told of is in them, and they add up."""

    def steps(life: Life) -> Steps[None]:
        while not sim.finishing:
            told = before + sim.ghosts.get("told", 0)
            now = yield from stats(shared(new_log(life)), 0.0)
            if now.inserted < told:
                raise Violation("a message is in none of the stats", told, now.routed, now.delayed)
            for one in (now, *now.shards.values()):
                if one.routed != one.acked + one.dead + one.purged + one.backlog or one.running > one.backlog:
                    raise Violation("the stats do not add up", one)
            yield from calls.pause(1)

    return steps


def purges(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Drops what is not done; in its write the shard has no owner."""
    sim.ghosts["lives"][NOBODY] = "purger"

    def steps(life: Life) -> Steps[None]:
        yield from calls.pause(life.rng.randint(1, 12))
        sim.ghosts["purged"] = yield from supervisor.purge(shared(new_log(life)), 0)

    return steps


def replays(sim: Simulation) -> Callable[[Life], Steps[None]]:
    """Asks for everything that is done in shard 0 to be delivered again."""
    done = expected(sim)

    def steps(life: Life) -> Steps[None]:
        item: Any = {}
        for _ in range(50):
            item = yield from guard.read(shared().shard(0))
            if item["position"]:
                break
            yield from calls.pause(2)
        sim.ghosts["until"] = item["position"]
        yield from replay.start(ID, {0: (0, item["position"])}, 7)
        done()

    return steps


# -- what must hold
def check(sim: Simulation) -> None:
    """Nothing acknowledged is forgotten, nothing counts twice, every key is in order, the stats add up."""
    items = sim.table.items
    log = sim.ghosts.get("log")
    head = heads.Head(items[heads.head_key(ID)])
    if log is None or log[0] != head.next:
        log = sim.ghosts["log"] = (head.next, messages(sim))
    dead = 0
    for q in range(head.partitions):
        item = items.get(shared().shard(q))
        if item is None:  # the queue has just grown
            continue
        w = Window.of(item["position"], item.get("queue"))
        by_owner(sim, q, item, item["owner"])
        none_while_paused(sim, q, w)
        done = {n for n in range(head.next[q]) if w.is_done(n)}
        if not sim.ghosts["done"][q] <= done:
            raise Violation("an acknowledgement was forgotten", q, sim.ghosts["done"][q], done)
        sim.ghosts["done"][q] = done
        if w.acked + w.dead + w.purged != len(done):
            raise Violation("the stats do not add up", q, w)
        dead += w.dead
        keys = log[1][q]
        missed = [n for n in done if (q, n) not in sim.ghosts["handled"] and keys[n] not in (FAILS, KILLS)]
        if len(missed) > w.purged and not sim.ghosts["at_most_once"]:
            raise Violation("acknowledged, and never handled", q, missed)
        for n in done:
            if any(k not in done for k in range(n) if keys[k] == keys[n]):
                raise Violation("the order of a key is broken", q, n, done)
        effects = items[effect(q)]["done"]
        if len(effects) != len(set(effects)):
            raise Violation("an effect happened twice", q, effects)
        if sim.ghosts["exact"] and len(effects) + w.dead + w.purged != len(done):
            raise Violation("an effect and its acknowledgement disagree", q, effects, done)
    again = items.get(Key(f"$Replay-{ID}", 7 * MAX_PARTITIONS))
    if again is not None:
        w = Window.of(again["position"], again.get("queue"))
        by_owner(sim, "replay", again, items[shared().shard(0)]["owner"])
        none_while_paused(sim, "replay", w)
        done = {n for n in range(again["until"]) if w.is_done(n)}
        if not sim.ghosts.setdefault("again", set()) <= done:
            raise Violation("an acknowledgement of a replay was forgotten", done)
        sim.ghosts["again"] = done
    if heads.Head(items[heads.head_key(DEAD_ID)]).next[0] != dead:
        raise Violation("a dead letter is missing, or there twice", dead)


def by_owner(sim: Simulation, q: Any, item: Any, owner: int) -> None:
    """A window, and that of a replay, is written by the shard's owner alone."""
    v = item.get("queue", {}).get("v", 0)
    if v != sim.ghosts["v"].get(q, 0):
        what, who = sim.history[-1][0]
        writer = who[0] if what == "lands" else who
        if sim.ghosts["lives"].get(owner) != writer:
            raise Violation("an acknowledgement by a past owner counts", q, writer, owner)
    sim.ghosts["v"][q] = v


def none_while_paused(sim: Simulation, q: Any, w: Window) -> None:
    """Nothing is emitted while the queue is paused."""
    if sim.ghosts["paused"] and w.emitted > sim.ghosts["emitted"].get(q, 0):
        raise Violation("emitted while paused", q)
    sim.ghosts["emitted"][q] = w.emitted


def messages(sim: Simulation) -> dict[int, list[bytes]]:
    partitions = range(heads.Head(sim.table.items[heads.head_key(ID)]).partitions)
    reader = Reader(new_log(), dict.fromkeys(partitions, 0), from_floor=True)
    out: dict[int, list[bytes]] = {q: [] for q in range(GROWN)}
    values = []
    veil = dict(sim.table.veil)  # what is true, whatever plain reads show
    sim.table.veil.clear()
    while fetched := sim.do(reader.poll()):
        for one in fetched:
            for record in as_records("q", one):
                keys = out[record.partition]
                keys += [b"removed %d" % n for n in range(len(keys), record.offset)]
                keys.append(record.key or b"")
                values.append(record.value)
    sim.table.veil.update(veil)
    if len(values) != len(set(values)):
        raise Violation("a message is in the queue twice", values)
    return out


def at_end(sim: Simulation) -> None:
    head = heads.Head(sim.table.items[heads.head_key(ID)])
    shards = [sim.table.items[shared().shard(q)] for q in range(head.partitions)]
    for q, item in enumerate(shards):
        if item["position"] != head.next[q]:
            raise Violation("a message was never done", q)
    purged = sum(Window.of(item["position"], item.get("queue")).purged for item in shards)
    if sim.ghosts.get("purged", purged) != purged:
        raise Violation("a purge says another number than it has dropped", sim.ghosts["purged"], purged)
    if any(key.p == f"$Delayed-{ID}" and key.i < LAST and "moved" not in item for key, item in sim.table.items.items()):
        raise Violation("a delayed message came again, or was left behind")
    if "until" in sim.ghosts and set(sim.ghosts["replayed"]) != {(0, n) for n in range(sim.ghosts["until"])}:
        raise Violation("a replay left something out", sim.ghosts["replayed"], sim.ghosts["until"])


def innocent(sim: Simulation) -> None:
    """Only messages that do harm are dead."""
    reader = Reader(new_log(id=DEAD_ID), {0: 0})
    for one in sim.do(reader.poll()):
        for record in as_records("dead", one):
            if record.key not in (FAILS, KILLS):
                raise Violation("a message that did no harm is dead", record.key)
