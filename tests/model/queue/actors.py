"""Actors: workers that share a shard, pushers, the clock holder, the supervisor."""

from __future__ import annotations

from tests.model.items import TIMEOUT
from tests.model.queue.items import (
    CLOCK,
    DEAD,
    DEDUP,
    EFFECT,
    LIMIT,
    LOG,
    REPLAY,
    SHARD,
    Message,
    Replay,
    Shard,
    Window,
    delayed,
)
from tests.model.queue.rules import (
    DELAY,
    DO,
    HELD,
    IN_TIME,
    MARK,
    MOVED,
    ONCE,
    PAUSE,
    PUSH,
    RAISE,
    RELEASE,
    REPLAYED,
    SWEEP,
    TAKE,
    WRITE,
)
from tests.model.world import IDLE, Make, Steps, World, get, write

FAILS, FLAKY, KILLS = "fails", "flaky", "kills"
"""Messages with these keys: a handler raises, raises once for the first of them, or ends its process."""


class Desk:
    """What a worker knows: its lease, the window as it last wrote it, and what handlers have told since."""

    __slots__ = ("epoch", "finished", "me", "retried", "v", "window")

    def __init__(self, me: str, shard: Shard) -> None:
        self.me, self.epoch, self.v, self.window = me, shard.epoch, shard.v, shard.window
        self.finished: list[int] = []
        self.retried: set[int] = set()


def worker(transactional: bool = False, leaves: bool = False, gives_up: bool = False) -> Make:
    """Takes the shard, emits, handles and acknowledges until everything is done.  One that `gives_up` does not repeat a
    transaction that had no answer, but takes the shard again and then tries the message again."""

    def run(w: World, me: str) -> Steps:
        lives = 0
        while True:
            name = f"{me}/{lives}"
            w.truth.alive.add(name)
            how = "gives up" if gives_up else transactional
            if (yield from _live(w, name, how, leaves and not lives)) != "killed":
                w.truth.alive.discard(name)
                return
            w.truth.alive.discard(name)
            lives += 1

    return run


def _live(w: World, me: str, transactional: bool | str, leaves: bool) -> Steps:
    while not (yield from _over(w)):
        shard = yield get(SHARD)
        desk = yield from _take(w, me, shard)
        if desk is None:
            continue
        while (how := (yield from _round(w, desk, transactional))) is None and not (yield from _over(w)):
            if leaves and desk.window.position:
                yield from _leave(w, desk)
                return "left"
        if how == "killed":
            return how
    return "done"


def _over(w: World) -> Steps:
    """Whether everything that will be pushed is done."""
    shard, log = (yield get(SHARD)), (yield get(LOG))
    replay = yield get(REPLAY)
    if replay is not None and replay.window.position < replay.until:
        return False
    return shard.window.position == len(log) and w.fair and not w.busy("worker")


def _take(w: World, me: str, seen: Shard) -> Steps:
    if seen.owner not in (None, me) and seen.owner in w.truth.alive:
        if w.fair or not w.doubts:
            yield IDLE
            return None
        w.doubts -= 1
    answer = yield write((TAKE, SHARD, seen, me))
    if answer is TIMEOUT or not answer.ok:
        return None
    desk = Desk(me, answer.items[0])
    if "text.takes_not_counted" not in w.m:
        desk.window = desk.window.begin()
    elif desk.window.upto > desk.window.position:
        desk.window = desk.window._replace(upto=desk.window.position)
    return desk


def _round(w: World, desk: Desk, transactional: bool | str) -> Steps:
    """Acknowledge what is finished and emit more, in one write; then handle what is open, in the order of each key."""
    log = yield get(LOG)
    new = desk.window
    for offset in desk.finished:
        new = new.finish(offset)
    for offset in desk.retried:
        new = new.fail(offset)
    emitted = new.emit(len(log), alone="text.no_isolation" not in w.m)
    early = emitted if emitted != new and "text.emit_after" in w.m else Window()
    if (how := (yield from _handle(w, desk, early, log, transactional))) is not None:
        return how
    if emitted != desk.window:
        ok = yield from _write(w, desk, emitted, emitted.upto > new.upto)
        if ok == "paused":
            if new == desk.window:
                yield IDLE
                return None
            ok = yield from _write(w, desk, new, False)
        if not ok:
            return "fenced"
    desk.finished, desk.retried = [], set()
    if (how := (yield from _handle(w, desk, desk.window, log, transactional))) is not None:
        return how
    return (yield from _replay(w, desk))


def _write(w: World, desk: Desk, new: Window, emits: bool, *also: tuple[object, ...], gives_up: bool = False) -> Steps:
    """A write of the window, repeated unchanged until it is known what became of it."""
    while True:
        answer = yield write((WRITE, SHARD, desk.me, desk.epoch, desk.v, new, emits), *also)
        if answer is TIMEOUT and gives_up:
            return "unknown"
        if answer is TIMEOUT:
            if "text.no_answer_is_refused" in w.m:
                stored = yield get(SHARD)
                desk.v, desk.window = stored.v, stored.window
                return "again"
            continue
        stored = answer.items[0]
        if answer.ok or _landed(w, desk, stored, new):
            desk.v, desk.window = stored.v, new
            return "written"
        if emits and stored.paused % 2 and (stored.owner, stored.epoch, stored.v) == (desk.me, desk.epoch, desk.v):
            return "paused"
        return ""


def _landed(w: World, desk: Desk, stored: Shard, new: Window) -> bool:
    """A refusal that shows one's own earlier attempt: only this owner writes in this epoch, one write at a time."""
    mine = (stored.owner, stored.epoch, stored.v) == (desk.me, desk.epoch, desk.v + 1)
    return mine and (stored.window == new or "text.late_for_own" in w.m)


def _handle(w: World, desk: Desk, window: Window, log: tuple[Message, ...], transactional: bool | str) -> Steps:
    """Every open message whose key does not wait: one that fails holds its key up, and nobody else's."""
    waiting: set[str] = set()
    for offset in window.open():
        key = log[offset][0]
        if (key in waiting and "text.retry_steps_aside" not in w.m) or offset in desk.finished:
            continue
        if window.tried(offset) >= LIMIT:
            if not (yield from _bury(w, desk, offset)):
                return "fenced"
            continue
        if key == KILLS:
            return "killed"
        if key == FAILS or (log[offset] == (FLAKY, 0) and not window.tried(offset)):
            waiting.add(key)
            desk.retried.add(offset)
            continue
        yield IDLE  # the handler works
        w.truth.handled.add(offset)
        if not transactional:
            desk.finished.append(offset)
            continue
        how = yield from _transact(w, desk, offset, transactional == "gives up", (DO, EFFECT, offset))
        if how == "unknown" and "text.late_for_own" in w.m:
            desk.retried.add(offset)  # the next epoch would keep it from landing later
        elif not how or how == "unknown":
            return "fenced"
    return None


def _transact(w: World, desk: Desk, offset: int, gives_up: bool, *also: tuple[object, ...]) -> Steps:
    """An effect and the acknowledgement in one write."""
    new = desk.window.finish(offset)
    while (how := (yield from _write(w, desk, new, False, *also, gives_up=gives_up))) == "again":
        if desk.window.done(offset) and "text.no_answer_is_refused" not in w.m:
            return True
    return how


def _bury(w: World, desk: Desk, offset: int) -> Steps:
    """The message goes to the dead letters and is done, in one write."""
    if "text.bury_two_steps" in w.m:
        yield write((DO, DEAD, offset))
        return (yield from _write(w, desk, desk.window.finish(offset, dead=True), False))
    return (yield from _write(w, desk, desk.window.finish(offset, dead=True), False, (DO, DEAD, offset)))


def _leave(w: World, desk: Desk) -> Steps:
    """Give the shard back: what was emitted and not begun has had no attempt."""
    new = desk.window
    for offset in desk.finished:
        new = new.finish(offset)
    if not (yield from _write(w, desk, new._replace(upto=new.position), False)):
        return
    while (yield write((RELEASE, SHARD, desk.me, desk.epoch))) is TIMEOUT:
        pass


# --- replay -----------------------------------------------------------------------------------------------------------
def _replay(w: World, desk: Desk) -> Steps:
    """One message of a replay: the window of the replay moves, the shard's does not."""
    replay = yield get(REPLAY)
    if replay is None or replay.window.position >= replay.until:
        return None
    offset = replay.window.position
    w.truth.replayed.add(offset)
    yield IDLE
    new = replay.window.finish(offset)
    if "text.replay_moves_position" in w.m:
        return None if (yield from _write(w, desk, desk.window.finish(offset)._replace(), False)) else "fenced"
    while True:
        again = (REPLAYED, REPLAY, replay.v, new), (DO, ("again", 0), offset)
        answer = yield write((HELD, SHARD, desk.me, desk.epoch), *again)
        if answer is not TIMEOUT:
            break
    held = answer.items[0]
    return None if answer.ok or (held.owner, held.epoch) == (desk.me, desk.epoch) else "fenced"


def replayer(w: World, me: str) -> Steps:
    """Asks for what was acknowledged so far to be delivered again."""
    while (shard := (yield get(SHARD))).window.position < 1:
        yield IDLE
    w.items[REPLAY] = Replay(0, Window(), shard.window.position)
    w.items[("again", 0)] = ()


# --- pushing ----------------------------------------------------------------------------------------------------------
def pusher(message: Message, dedup: bool = False, delay: int | None = None) -> Make:
    """Pushes one message until there is an answer, perhaps in two lives."""

    def run(w: World, me: str) -> Steps:
        now = (PUSH, LOG, message)
        also: list[tuple[object, ...]] = [(ONCE, DEDUP, message)] if dedup else []
        doubt = False
        if delay is not None:
            later = (DELAY, delayed(delay), message), (IN_TIME, CLOCK, delay)
            while True:
                answer = yield write(*later, *also)
                if answer is TIMEOUT:
                    doubt = True
                    continue
                if answer.ok or answer.items[0] is not None:
                    w.truth.sent.add(message)
                    return
                if doubt and "text.push_after_doubt" not in w.m:
                    return  # OutcomeUnknown: it was moved long ago, or never came
                break  # it is due
        while (yield write(now, *also)) is TIMEOUT and dedup:  # without it, the log's own model says how it is exact
            pass
        if dedup:
            w.truth.sent.add(message)

    return run


def mover(numbers: tuple[int, ...]) -> Make:
    """The clock holder: moves due messages into the log, each in one write with the mark that is left of it."""

    def run(w: World, me: str) -> Steps:
        while not w.fair or [a for a in w.busy("mover") if a.me[:4] == "push"]:
            yield from _move_all(w, numbers)
            yield IDLE
        yield from _move_all(w, numbers)

    return run


def _move_all(w: World, numbers: tuple[int, ...]) -> Steps:
    for number in numbers:
        while (message := (yield get(delayed(number)))) not in (None, MARK):
            if "text.move_two_steps" in w.m:
                yield write((PUSH, LOG, message))
                yield write((MOVED, delayed(number)))
            else:
                yield write((PUSH, LOG, message), (MOVED, delayed(number)))


def sweeper(numbers: tuple[int, ...]) -> Make:
    """Upkeep: raises the clock's low mark, then removes the marks below it."""

    def run(w: World, me: str) -> Steps:
        for number in numbers:
            for _ in range(6):
                yield IDLE
            if "text.sweep_unconfirmed" not in w.m:
                while (yield get(CLOCK)) <= number:
                    yield write((RAISE, CLOCK, number + 1))
            yield write((SWEEP, delayed(number)))

    return run


# --- supervising ------------------------------------------------------------------------------------------------------
def pauser(w: World, me: str) -> Steps:
    """Pauses, looks, and plays again."""
    yield from _say(w, True)
    w.truth.paused = True
    for _ in range(4):
        yield IDLE
    w.truth.paused = False
    yield from _say(w, False)


def _say(w: World, paused: bool) -> Steps:
    while (shard := (yield get(SHARD))).paused % 2 != paused:
        yield write((PAUSE, SHARD, shard.paused))
