"""Actors of a simulation, and their lives: an actor that is restarted begins another life."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

from tailrace.storage.calls import Call, Now, Steps


class Life:
    """One life of an actor, which its factory gets.  `name` is unique: "a", after a restart "a.2"."""

    __slots__ = ("_rng", "_seed", "actor", "name", "number")

    def __init__(self, actor: str, number: int, seed: int) -> None:
        self.actor, self.number = actor, number
        self.name = actor if number == 1 else f"{actor}.{number}"
        self._seed = seed
        self._rng: random.Random | None = None

    @property
    def rng(self) -> random.Random:
        """Randomness for this life alone: the same in every schedule of one seed."""
        if self._rng is None:
            self._rng = random.Random(f"{self._seed}/{self.name}")
        return self._rng


Factory: TypeAlias = Callable[[Life], Steps[Any]]
"""Makes the steps of one life."""


class Actor:
    """A running life: its steps, the call that it waits for, and how it may die."""

    __slots__ = ("call", "calls", "dies", "expects", "factory", "life", "name", "restarts", "speed", "steps", "wake")

    def __init__(
        self, life: Life, factory: Factory, restarts: int, dies: bool, expects: tuple[type[Exception], ...]
    ) -> None:
        self.life, self.name, self.factory = life, life.name, factory
        self.restarts, self.dies, self.expects = restarts, dies, expects
        self.steps = factory(life)
        self.call: Call = Now()
        self.calls, self.speed, self.wake = 0, 1.0, 0.0

    def next_life(self, seed: int) -> Actor:
        """Return the actor's next life, which remembers nothing of this one."""
        life = Life(self.life.actor, self.life.number + 1, seed)
        return Actor(life, self.factory, self.restarts - 1, self.dies, self.expects)
