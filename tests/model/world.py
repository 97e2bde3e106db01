"""World: the table, the objects, what is in flight, the actors, and who moves next.

A write, put or delete may answer TIMEOUT, having landed, or to land at any later step.  A transaction may be torn:
plain reads do not show one of its items for a while; any write that meets the item sees the truth, and makes it show.
Any actor may stall; one with restarts may crash, or be restarted while its old life lives on (a zombie).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from tests.model import rules
from tests.model.items import (
    EFFECT,
    HEAD,
    LAST,
    NAMED,
    READER,
    SHARD,
    TIMEOUT,
    Answer,
    Entry,
    Head,
    Key,
    Named,
    Page,
    Pipe,
    Shard,
    must,
)
from tests.model.truth import Truth

Request: TypeAlias = tuple[Any, ...]
Steps: TypeAlias = Generator[Request, Any, Any]
Make: TypeAlias = "Callable[[World, str], Steps]"
Cast: TypeAlias = dict[str, tuple[Make, int]]
"""Who acts: how to make a life, and how many restarts it has."""
Move: TypeAlias = tuple[str, Any]

WRITES = ("write", "put", "del")


# --- requests ---------------------------------------------------------------------------------------------------------
IDLE: Request = ("idle",)
LIST: Request = ("list",)


def get(key: Key) -> Request:
    """One item."""
    return "get", key


def after(number: int) -> Request:
    """The first page item with first > number."""
    return "next", number


def upto(number: int) -> Request:
    """The last page item with first <= number."""
    return "prev", number


def write(*actions: tuple[Any, ...]) -> Request:
    """A guarded write: (rule, key, arguments…) each, all or none."""
    return "write", actions


def page_key(number: int) -> Key:
    """Where a page lives."""
    return "log", number


def roll(head: Head) -> Request:
    """ROLL: the head's entries become a page, in one transaction."""
    return write(
        (rules.ROLL_PAGE, page_key(head.page), head.as_page(v=1)),
        (rules.ROLL_HEAD, HEAD, head),
    )


class Actor:
    """A life at work: its steps and the request it waits for (None: it has ended)."""

    __slots__ = ("life", "make", "me", "request", "restarts", "steps")

    def __init__(self, make: Make, restarts: int, life: int, me: str) -> None:
        self.make, self.restarts, self.life, self.me = make, restarts, life, me
        self.steps: Steps
        self.request: Request | None = None


class World:
    """Everything there is, in one schedule."""

    def __init__(
        self,
        cast: Cast,
        prefill: int = 0,
        m: frozenset[str] = frozenset(),
        timeouts: int = 2,
        crashes: int = 1,
        torn: int = 1,
    ) -> None:
        self.m, self.timeouts, self.crashes, self.torn = m, timeouts, crashes, torn
        self.doubts, self.fair, self.telling = 2, False, False
        self.done: list[Any] = []
        self.items: dict[Key, Any] = {HEAD: Head(), NAMED: Named(), READER: Pipe(), SHARD: Shard(), EFFECT: ()}
        self.objects: dict[Any, Any] = {}
        self.late: list[Request] = []
        self.veil: dict[Key, Any] = {}
        self.truth = Truth()
        self.actors: dict[str, Actor] = {}
        for number in range(prefill):
            self._old_page(number)
        for name, (make, restarts) in cast.items():
            self.start(name, make, restarts)

    def _old_page(self, number: int) -> None:
        """A page with one record of partition 0, from before the schedule."""
        entry = Entry(f"old.{number}", (0, "old", number), 0, ((0, 1),))
        self.do(("put", entry.where, ((0, (("old", number),)),)))
        self.do(write((rules.APPEND, HEAD, number, entry)))
        self.do(roll(self.head))

    @property
    def head(self) -> Head:
        """The head as it truly is."""
        head: Head = self.items[HEAD]
        return head

    # --- actors ---
    def start(self, name: str, make: Make, restarts: int = 0, life: int = 0) -> None:
        """Begin a life."""
        actor = self.actors[name] = Actor(make, restarts, life, f"{name}{life or ''}")
        actor.steps = make(self, actor.me)
        self._resume(actor, None)

    def _resume(self, actor: Actor, answer: Any) -> None:
        try:
            actor.request = actor.steps.send(answer)
        except StopIteration:
            actor.request = None

    def busy(self, but: str = "\0") -> list[Actor]:
        """Actors that have not ended, but for those whose name begins so."""
        return [a for name, a in self.actors.items() if a.request is not None and not name.startswith(but)]

    # --- storage ---
    def do(self, request: Request, torn: int | None = None) -> Any:
        """Carry out a request."""
        op, *args = request
        if op == "write":
            return self._write(args[0], torn)
        if op in ("get", "next", "prev"):
            return self._read(op, args[0])
        if op == "put":
            self.objects[args[0]] = self.truth.bytes[args[0]] = args[1]
        elif op == "del":
            self.objects.pop(args[0], None)
        elif op == "obj":
            return self.objects.get(args[0])
        elif op == "list":
            return tuple(sorted(self.objects))
        return None

    def _read(self, op: str, at: Any) -> Any:
        shown = {**self.items, **self.veil} if self.veil else self.items
        if op == "get":
            return shown.get(at)
        pages = [item for key, item in shown.items() if key[0] == "log" and key[1] < LAST and item is not None]
        if op == "next":
            return min((page for page in pages if page.first > at), default=None)
        return max((page for page in pages if page.first <= at), default=None)

    def _write(self, actions: tuple[tuple[Any, ...], ...], torn: int | None) -> Answer:
        for _, key, *_ in actions:
            self.veil.pop(key, None)
        new = [rule(self.m, self.items.get(key), *args) for rule, key, *args in actions]
        if rules.NO in new:
            return Answer(False, tuple(self.items.get(action[1]) for action in actions))
        if torn is not None:
            key = actions[torn][1]
            self.veil[key] = self.items.get(key)
        for (rule, key, *args), item in zip(actions, new, strict=True):
            if item is None:
                self.items.pop(key, None)
            else:
                self.items[key] = item
            self.truth.witness(rule, args, item, self.items)
        return Answer(True, tuple(new))

    # --- moves ---
    def moves(self) -> list[Move]:
        """Every move that can be made now."""
        moves: list[Move] = []
        for name, actor in self.actors.items():
            if actor.request is not None:
                moves += [(what, name) for what in self._ways(actor, actor.request)]
        moves += [("shows", key) for key in self.veil]
        return moves + [("lands late", n) for n in range(len(self.late))]

    def _ways(self, actor: Actor, request: Request) -> list[str]:
        ways = ["step"]
        if self.timeouts and request[0] in WRITES:
            ways += ["landed, answer lost", "in flight"]
        if self.torn and request[0] == "write" and len(request[1]) > 1:
            ways += ["torn 0", "torn 1"]
        if self.crashes and actor.life < actor.restarts:
            ways += ["crash", "zombie"]
        return ways

    def apply(self, move: Move, check: bool = True) -> None:
        """Make a move; then everything that must hold is looked at."""
        what, who = move
        self.done.append(self.told(move) if self.telling else move)
        if what == "lands late":
            self.do(self.late.pop(who))
        elif what == "shows":
            del self.veil[who]
        elif what in ("crash", "zombie"):
            self._restart(what, who)
        else:
            self._resume(self.actors[who], self._answer(what, self.actors[who].request or IDLE))
        if check:
            self.truth.check(self.items, self.objects)

    def _answer(self, what: str, request: Request) -> Any:
        if what == "step":
            return self.do(request)
        if what.startswith("torn"):
            self.torn -= 1
            return self.do(request, int(what[5:]))
        self.timeouts -= 1
        if what == "in flight":
            self.late.append(request)
        else:
            self.do(request)
        return TIMEOUT

    def _restart(self, what: str, who: str) -> None:
        old = self.actors.pop(who)
        self.crashes -= 1
        make, restarts, life = old.make, old.restarts, old.life
        if what == "zombie":
            old.restarts = 0
            self.actors[f"{who}'"] = old
        self.start(who, make, restarts, life + 1)

    def told(self, move: Move) -> str:
        """A move in words, told before it is made."""
        what, who = move
        if what in ("crash", "zombie"):
            return f"{who}: {what}, new life"
        if what == "shows":
            return f"the new state of {who} shows"
        if what == "lands late":
            return f"{said(self.late[who])} lands late"
        return f"{who}: {said(self.actors[who].request or IDLE)}" + ("" if what == "step" else f" ({what})")

    # --- the end ---
    def finish(self, rng: random.Random, limit: int = 3000) -> None:
        """No more faults: every actor must come to its end, and everything must be read and cleaned."""
        self.timeouts = self.crashes = self.torn = 0
        self.fair = True
        for _ in range(limit):
            moves = self.moves()
            if not self.busy():
                break
            self.apply(rng.choice(moves))
        else:
            must(False, "livelock: " + " ".join(name for name, a in self.actors.items() if a.request is not None))
        self.veil.clear()
        for request in self.late:
            self.do(request)
        self.late = []

    def clean_up(self, cleaner: Make) -> None:
        """A last cleaner finds every page and leaves no orphan."""
        self.start("last cleaner", cleaner)
        for _ in range(500):
            if self.actors["last cleaner"].request is not None:
                self.apply(("step", "last cleaner"))
        must(self.actors["last cleaner"].request is None, "a page is missing for ever")
        pages = [item for item in self.items.values() if isinstance(item, (Page, Head))]
        named = {entry.where for page in pages for entry in page.e}
        must(all(name in named for name in self.objects), "orphans never cleaned")


def said(request: Request) -> str:
    """A request in words."""
    if request[0] == "write":
        return "+".join(action[0].__name__ for action in request[1])
    if request[0] in ("list", "idle"):
        return str(request[0])
    return f"{request[0]} HEAD" if request[1] == HEAD else f"{request[0]} {request[1]}"
