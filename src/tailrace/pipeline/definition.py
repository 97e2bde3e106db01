"""Definitions: a pipeline as its author wrote it, in Python or TOML, checked and ready to run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tailrace.adaptors.registry import reader_settings, writer_settings
from tailrace.errors import BadSetting
from tailrace.log.catalog import check_name

if TYPE_CHECKING:  # what delivers needs Spark, what is only written does not
    from tailrace.pipeline.delivery import Function

OnError: TypeAlias = Literal["stop", "dead_letter", "skip"]
Fill: TypeAlias = Literal["log", "copy"]
CompactBy: TypeAlias = Literal["document", "namespace"]


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """Where a pipeline reads: an adaptor, its settings, and which namespaces."""

    adaptor: str
    settings: Mapping[str, Any] = field(repr=False)
    namespace: str = ".*"


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """One way out: which namespaces, through which functions, into what."""

    name: str
    adaptor: str
    settings: Mapping[str, Any] = field(repr=False)
    namespace: str = ".*"
    functions: tuple[Function, ...] = ()
    on_error: OnError = "stop"
    fill: Fill = "log"
    """What a writer that comes later starts with: everything in the commit log, or a fresh copy of the source."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One reader, any number of branches, and a home."""

    name: str
    home: str
    source: SourceDefinition
    sinks: tuple[SinkDefinition, ...]
    partitions: int = 8
    piece_rows: int = 100_000
    flush_seconds: float = 1.0
    stop_seconds: float = 30.0
    compact_by: CompactBy | None = None
    """What upkeep keeps of the commit log, of what all writers have: the last message of each "document", or of each
    "namespace"; None: everything."""
    upkeep_seconds: float | None = 3600.0
    """How often upkeep of the home is done in the background of a run; None: never."""

    def check(self) -> None:
        """Refuse what cannot run, before anything is touched."""
        check_name("pipeline", self.name)
        check_regex(f"the source of {self.name!r}", self.source.namespace)
        if not self.sinks:
            raise BadSetting(f"the pipeline {self.name!r} has no sink; end a branch with .save(…)")
        if self.compact_by is not None and self.compact_by not in get_args(CompactBy):
            raise BadSetting.unknown(f"compact_by of {self.name!r}", self.compact_by, get_args(CompactBy))
        if self.upkeep_seconds is not None and not self.upkeep_seconds > 0:
            raise BadSetting(f"upkeep_seconds of {self.name!r} is a number above 0, or null for never")
        for sink in self.sinks:
            check_name("writer", sink.name)
            check_regex(f"the writer {sink.name!r}", sink.namespace)
            if sink.on_error not in get_args(OnError):
                raise BadSetting.unknown(f"on_error of the writer {sink.name!r}", sink.on_error, get_args(OnError))
            if sink.fill not in get_args(Fill):
                raise BadSetting.unknown(f"fill of the writer {sink.name!r}", sink.fill, get_args(Fill))
        names = [sink.name for sink in self.sinks]
        if len(set(names)) < len(names):
            raise BadSetting(f"two writers of {self.name!r} have the same name; give each its own: .save(…, name=…)")

    def check_settings(self) -> None:
        """Refuse settings that no end could be made from, before any is asked: each `${ENV}` must be set by now."""
        reader_settings(self.source.adaptor, self.source.settings)
        for sink in self.sinks:
            writer_settings(sink.adaptor, sink.settings)


def check_regex(what: str, namespace: str) -> None:
    """Refuse a namespace that is not a regular expression."""
    try:
        re.compile(namespace)
    except re.error as error:
        raise BadSetting(f"{what}: the namespace {namespace!r} is not a regular expression: {error}") from None


def unmatched(what: str, namespace: str, there: Sequence[str]) -> str | None:
    """What to say where a namespace matches nothing of what is there; None if it matches something, or nothing is."""
    if not there or any(re.search(namespace, name) for name in there):
        return None
    some = ", ".join(sorted(there)[:5]) + ("…" if len(there) > 5 else "")
    return f"the namespace {namespace!r} of {what} matches nothing that is there; there are: {some}"
