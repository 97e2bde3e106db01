"""Changes of a pipeline's definition between two runs: what they are, and which would lose data.

`described` is what a run keeps of its definition: no values of settings, which may be secrets, only marks by which one
sees that they have changed.  A password in a URL does not count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any
from urllib.parse import urlsplit

from tailrace.adaptors.jsontext import to_json
from tailrace.pipeline.definition import Definition, SinkDefinition
from tailrace.pipeline.functions.calls import name_of
from tailrace.pipeline.pipeline import TUNING

PLACES = {"uri", "url", "path", "home", "topic", "host", "port", "database", "schema", "bucket", "prefix", "table"}
"""The settings of a sink that say where it is."""

_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*|\bpassword\s*=\s*('(\\.|[^'\\])*'|\S*)")
"""In the query of a URL, or as one of key=value pairs."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was; `loses` says that a run as it is now would leave data out."""

    text: str
    loses: bool = False


def described(definition: Definition) -> dict[str, Any]:
    """A definition as it can be kept and compared: anything that JSON can hold."""
    source = definition.source
    return {
        "source": {"adaptor": source.adaptor, "namespace": source.namespace, "settings": _marks(source.settings)},
        "sinks": {sink.name: _sink(sink) for sink in definition.sinks},
        **{name: getattr(definition, name) for name in TUNING},
    }


def _sink(sink: SinkDefinition) -> dict[str, Any]:
    functions = [[_shown(f), _mark(_code(f))] for f in sink.functions]
    kept = {"adaptor": sink.adaptor, "namespace": sink.namespace, "on_error": sink.on_error, "functions": functions}
    return {**kept, "settings": _marks(sink.settings), "fill": sink.fill}


def changes(old: Mapping[str, Any], new: Mapping[str, Any], namespaces: Iterable[str] = ()) -> list[Change]:
    """What has changed between two `described` definitions; `namespaces` are those of the commit log so far."""
    known = list(namespaces)
    return [*_of_pipeline(old, new), *_of_source(old["source"], new["source"]), *_of_sinks(old, new, known)]


def _of_pipeline(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in TUNING:
        if old.get(name) != new.get(name):
            loses = name == "partitions"
            why = ": the commit log has as many as it was made with; give the pipeline another name" if loses else ""
            yield Change(f"{name} was {old.get(name)}, is {new.get(name)}{why}", loses)


def _of_source(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old["adaptor"] != new["adaptor"]:
        yield Change(
            f"the source was {old['adaptor']!r}, is {new['adaptor']!r}: how far it was read means nothing there; give "
            "the pipeline another name, and it is copied afresh",
            loses=True,
        )
    elif settings := _different(old["settings"], new["settings"]):
        yield Change(f"the source has another {', '.join(settings)}")
    if old["namespace"] != new["namespace"]:
        yield Change(
            f"the source's namespace was {old['namespace']!r}, is {new['namespace']!r}: what matches now and did not "
            "is copied; what no longer does stays as it is"
        )


def _of_sinks(old: Mapping[str, Any], new: Mapping[str, Any], known: list[str]) -> Iterator[Change]:
    before, after = old["sinks"], new["sinks"]
    for name in before:
        if name not in after:
            yield Change(f"the writer {name!r} is gone; what it has not taken stays in the commit log")
    for name in after:
        if name not in before:
            renamed = [n for n in before if n not in after and before[n] == after[name]]
            hint = f" (it is {renamed[0]!r} under another name, and starts anew)" if renamed else ""
            start = "by a fresh copy" if after[name]["fill"] == "copy" else "from the start of the commit log"
            yield Change(f"the writer {name!r} is new: it is filled {start}{hint}")
        else:
            yield from _of_sink(name, before[name], after[name], known)


def _of_sink(name: str, old: Mapping[str, Any], new: Mapping[str, Any], known: list[str]) -> Iterator[Change]:
    moved = [s for s in _different(old["settings"], new["settings"]) if s in PLACES]
    if old["adaptor"] != new["adaptor"] or moved:
        what = ", ".join(moved) if old["adaptor"] == new["adaptor"] else "adaptor"
        yield Change(
            f"the writer {name!r} has another {what}: what it had taken is not there; give it another name, and it is "
            "filled from the start",
            loses=True,
        )
    if others := [s for s in _different(old["settings"], new["settings"]) if s not in PLACES]:
        yield Change(f"the writer {name!r} has another {', '.join(others)}")
    if old["namespace"] != new["namespace"]:
        yield _namespace_change(name, old["namespace"], new["namespace"], known)
    if old["on_error"] != new["on_error"]:
        yield Change(f"on_error of the writer {name!r} was {old['on_error']!r}, is {new['on_error']!r}")
    if old["functions"] != new["functions"]:
        yield Change(f"the functions of the writer {name!r} were {_list(old)}, are {_list(new)}; from now on")


def _namespace_change(name: str, old: str, new: str, known: list[str]) -> Change:
    missed = [n for n in known if re.search(new, n) and not re.search(old, n)]
    told = f"the namespace of the writer {name!r} was {old!r}, is {new!r}"
    if not missed:
        return Change(told)
    return Change(
        f"{told}: of {', '.join(missed[:5])}{'…' if missed[5:] else ''} it has passed over what is in the commit log; "
        "give it another name, and it is filled from the start",
        loses=True,
    )


def _list(sink: Mapping[str, Any]) -> str:
    return ", ".join(f"{shown} [{mark[:4]}]" for shown, mark in sink["functions"]) or "none"


def _different(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


# -- marks
def _marks(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: _mark(_without_password(value)) for name, value in settings.items()}


def _mark(value: Any) -> str:
    """A short mark: enough to see a change by, too little to find a secret from."""
    return hashlib.sha256(to_json(value)).hexdigest()[:8]


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
    """What a function does, as far as one can see: its arguments, or the code of the one it calls."""
    inner = getattr(function, "function", None)
    code = getattr(inner, "__code__", None)
    return _instructions(code) if code is not None else repr(function) if inner is None else name_of(inner)


def _instructions(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), [_constant(c) for c in code.co_consts], list(code.co_names)]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    # the order of a set is another in every process
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
