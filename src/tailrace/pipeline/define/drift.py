"""Drift: the differences between a pipeline's definition and that of its last run, and which of them would lose data.

A run stores its definition as `described`.  Values of settings may be secrets, so it has only marks of them, which
show that a value has changed.  They are made with a random key of the home, so that nobody can find a value by trying
likely ones.  A password, in a URL or as a setting, leaves no mark at all.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any
from urllib.parse import urlsplit

from tailrace.adaptors.rows.json_text import to_json
from tailrace.pipeline.define.builder import TUNING
from tailrace.pipeline.define.definition import Definition, SinkDefinition
from tailrace.pipeline.functions.calls import name_of

PLACES = {
    "uri", "url", "path", "home", "topic", "brokers", "host", "port", "database", "schema", "bucket", "prefix", "table",
}  # fmt: skip
"""The settings of a sink that name its place."""

_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*|\bpassword\s*=\s*('(\\.|[^'\\])*'|\S*)")
"""Matches a password in the query of a URL, or among key=value pairs."""


_SECRET = re.compile(r"password|passwd|secret|token|credential|api_?key", re.IGNORECASE)
"""Matches the names of settings whose whole value is a secret."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two definitions; `loses` says that a run with the new one would leave data out."""

    text: str
    loses: bool = False
    refill: str = ""
    """The writer that must start again from the beginning of the commit log because of this difference."""


def described(definition: Definition, key: bytes | None) -> dict[str, Any]:
    """A definition as JSON values, to be stored and compared.

    `key` is the home's; None makes marks without a key, as earlier versions did."""
    source = definition.source
    settings = _marks(source.settings, key)
    return {
        "source": {"adaptor": source.adaptor, "namespace": source.namespace, "settings": settings},
        "sinks": {sink.name: _sink(sink, key) for sink in definition.sinks},
        **({} if key is None else {"keyed": True}),
        **{name: getattr(definition, name) for name in TUNING},
    }


def _sink(sink: SinkDefinition, key: bytes | None) -> dict[str, Any]:
    functions = [[_shown(f), _mark(_code(f), key)] for f in sink.functions]
    kept = {"adaptor": sink.adaptor, "namespace": sink.namespace, "on_error": sink.on_error, "functions": functions}
    return {**kept, "settings": _marks(sink.settings, key), "fill": sink.fill, "redeliver": sink.redeliver}


def changes(old: Mapping[str, Any], new: Mapping[str, Any], namespaces: Iterable[str] = ()) -> list[Difference]:
    """The differences between two `described` definitions; `namespaces` are those in the commit log so far."""
    known = list(namespaces)
    return [*_of_pipeline(old, new), *_of_source(old["source"], new["source"]), *_of_sinks(old, new, known)]


def _of_pipeline(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for name in TUNING:
        if old.get(name) != new.get(name):
            loses = name == "partitions"
            why = ": the commit log has as many as it was made with; give the pipeline another name" if loses else ""
            yield Difference(f"{name} was {old.get(name)}, is {new.get(name)}{why}", loses)


def _of_source(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    if old["adaptor"] != new["adaptor"]:
        yield Difference(
            f"the source was {old['adaptor']!r}, is {new['adaptor']!r}: how far it was read means nothing there; give "
            "the pipeline another name, and it is copied afresh",
            loses=True,
        )
    elif settings := _different(old["settings"], new["settings"]):
        yield Difference(f"the source has another {', '.join(settings)}")
    if old["namespace"] != new["namespace"]:
        yield Difference(
            f"the source's namespace was {old['namespace']!r}, is {new['namespace']!r}: what matches now and did not "
            "is copied; what no longer does stays as it is"
        )


def _of_sinks(old: Mapping[str, Any], new: Mapping[str, Any], known: list[str]) -> Iterator[Difference]:
    before, after = old["sinks"], new["sinks"]
    for name in before:
        if name not in after:
            yield Difference(f"the writer {name!r} is gone; upkeep no longer keeps for it what it has not taken")
    for name in after:
        if name not in before:
            renamed = [n for n in before if n not in after and before[n] == after[name]]
            hint = f" (it is {renamed[0]!r} under another name, and starts again)" if renamed else ""
            start = "by a fresh copy" if after[name]["fill"] == "copy" else "from the start of the commit log"
            yield Difference(f"the writer {name!r} is new: it is filled {start}{hint}")
        else:
            yield from _of_sink(name, before[name], after[name], known)


def _of_sink(name: str, old: Mapping[str, Any], new: Mapping[str, Any], known: list[str]) -> Iterator[Difference]:
    moved = [s for s in _different(old["settings"], new["settings"]) if s in PLACES]
    if old["adaptor"] != new["adaptor"] or moved:
        what = ", ".join(moved) if old["adaptor"] == new["adaptor"] else "adaptor"
        yield Difference(
            f"the writer {name!r} has another {what}: what it had taken is not there; give it another name, and it is "
            "filled from the start",
            loses=True,
        )
    if others := [s for s in _different(old["settings"], new["settings"]) if s not in PLACES]:
        yield Difference(f"the writer {name!r} has another {', '.join(others)}")
    if old["namespace"] != new["namespace"]:
        yield _namespace_change(name, old["namespace"], new["namespace"], known)
    for policy in ("on_error", "redeliver"):
        if policy in old and old[policy] != new[policy]:  # an earlier version has stored no redeliver
            yield Difference(f"{policy} of the writer {name!r} was {old[policy]!r}, is {new[policy]!r}")
    if old["functions"] != new["functions"]:
        yield Difference(f"the functions of the writer {name!r} were {_list(old)}, are {_list(new)}; from now on")


def _namespace_change(name: str, old: str, new: str, known: list[str]) -> Difference:
    missed = [n for n in known if re.search(new, n) and not re.search(old, n)]
    told = f"the namespace of the writer {name!r} was {old!r}, is {new!r}"
    if not missed:
        return Difference(told)
    if not any(re.search(old, n) for n in known):
        return Difference(f"{told}: it has matched nothing so far, so it is filled from the start", refill=name)
    return Difference(
        f"{told}: of {', '.join(missed[:5])}{'…' if missed[5:] else ''} it has passed over what is in the commit log; "
        "give it another name, and it is filled from the start",
        loses=True,
    )


def _list(sink: Mapping[str, Any]) -> str:
    return ", ".join(f"{shown} [{mark[:4]}]" for shown, mark in sink["functions"]) or "none"


def _different(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


# -- marks
def _marks(settings: Mapping[str, Any], key: bytes | None) -> dict[str, str]:
    kept = {name: value for name, value in settings.items() if key is None or not _SECRET.search(name)}
    return {name: _mark(_without_password(value), key) for name, value in kept.items()}


def _mark(value: Any, key: bytes | None) -> str:
    """A short mark of a value, by which a change can be seen."""
    if key is None:
        return hashlib.sha256(to_json(value)).hexdigest()[:8]
    return hmac.new(key, to_json(value), "sha256").hexdigest()[:16]


def _without_password(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = _PASSWORD.sub("", value)
    if "@" not in value or "://" not in value:
        return value
    parts = urlsplit(value)
    return parts._replace(netloc=f"{parts.username or ''}@{parts.netloc.rpartition('@')[2]}").geturl()


def _shown(function: Any) -> str:
    inner = getattr(function, "function", None)
    return name_of(inner) if inner is not None else type(function).__name__.lower()


def _code(function: Any) -> Any:
    """A function's behaviour as far as it can be compared: its arguments, or the code of the user's function in it."""
    inner = getattr(function, "function", None)
    code = getattr(inner, "__code__", None)
    return _instructions(code) if code is not None else repr(function) if inner is None else name_of(inner)


def _instructions(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), [_constant(c) for c in code.co_consts], list(code.co_names)]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    # a set has another order in each process
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
