"""Fingerprint: the state of a simulation as one number, which recognises equal states."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from types import FunctionType, MethodType, ModuleType
from typing import Any

from msgspec import Struct

from tailrace.testing.simulation import Simulation

_COUNT = count()
_PLAIN = (type(None), bool, int, str, bytes, type, ModuleType)


def fingerprint(sim: Simulation) -> int:
    """Return a number that equal states share: storage, late requests, faults left, ghosts, every life's variables."""
    lives = [(a.name, a.restarts, a.call, a.steps) for a in sim.actors()]
    storage = (sim.table.items, sim.table.veil, sim.objects.items)
    return hash(_frozen((storage, sim.late, sim.budget, sim.ghosts, sim.results, lives), {id(sim): 0}))


def _frozen(value: Any, met: dict[int, int]) -> Any:
    """Return a hashable value with the same content.  A reference to a containing object becomes a number."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return "a time"
    if id(value) in met:
        return met[id(value)]
    met[id(value)] = len(met)
    try:
        return type(value), _content(value, lambda inner: _frozen(inner, met))
    finally:
        del met[id(value)]


def _content(value: Any, frozen: Callable[[Any], Any]) -> Any:
    match value:
        case dict():
            return frozenset((frozen(name), frozen(inner)) for name, inner in value.items())
        case list() | tuple():
            return tuple(frozen(inner) for inner in value)
        case set() | frozenset():
            return frozenset(frozen(inner) for inner in value)
        case Generator():
            return _position(value, frozen)
        case FunctionType():
            return value.__code__, tuple(frozen(cell.cell_contents) for cell in value.__closure__ or ())
        case MethodType():
            return value.__func__, frozen(value.__self__)
        case random.Random():
            return value.getstate()
        case BaseException():
            return frozen(value.args)
        case _:
            return tuple((name, frozen(inner)) for name, inner in _attributes(value).items())


def _position(steps: Generator[Any, Any, Any], frozen: Callable[[Any], Any]) -> Any:
    """Return where a generator is paused and what its variables hold, and the same of the generator it waits for."""
    frame = steps.gi_frame  # type: ignore[attr-defined]
    if frame is None:
        return "ended"
    variables = tuple((name, frozen(value)) for name, value in frame.f_locals.items())
    return frame.f_code, frame.f_lasti, variables, frozen(steps.gi_yieldfrom)  # type: ignore[attr-defined]


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object; an object without attributes equals no other."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, "__dict__", {})
    return held or {"unlike any other": next(_COUNT)}
