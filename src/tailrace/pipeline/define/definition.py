"""Definitions: pipelines as their authors wrote them in Python or TOML, with their checks."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, get_args

from tailrace.adaptors.contract import Settings
from tailrace.adaptors.registry import located, reader_settings, writer_settings
from tailrace.coordination.failure import OnError as OnError
from tailrace.errors import BadSetting
from tailrace.log.catalog import MAX_PARTITIONS, check_name

if TYPE_CHECKING:  # delivery needs Spark, a definition does not
    from tailrace.pipeline.functions.calls import Function

Fill: TypeAlias = Literal["log", "copy"]
Redeliver: TypeAlias = Literal["halves", "singly"]
READ_AHEAD_SUFFIX = "--ahead"
"""The suffix of the name of the log with changes that are read ahead of a copy: see ingest.read_ahead."""
CompactBy: TypeAlias = Literal["document", "namespace"]


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """The source of a pipeline: an adaptor, its settings, and which namespaces it reads."""

    adaptor: str
    settings: Mapping[str, Any] = field(repr=False)
    namespace: str = ".*"
    folder: str = ""
    """The folder in which relative paths among the settings start."""

    def checked(self) -> Settings:
        """The checked settings of the reader, with each `${ENV}` substituted and each path absolute."""
        return reader_settings(self.adaptor, self.settings, self.folder)


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """A branch of a pipeline: which namespaces it takes, through which functions, into which sink."""

    name: str
    adaptor: str
    settings: Mapping[str, Any] = field(repr=False)
    namespace: str = ".*"
    functions: tuple[Function, ...] = ()
    on_error: OnError = "stop"
    fill: Fill = "log"
    """What a writer that is added later starts with: everything in the commit log, or a fresh copy of the source."""
    redeliver: Redeliver = "halves"
    """How a failed batch is delivered again: halved until each failing message is found, or message by message."""
    folder: str = ""
    """The folder in which relative paths among the settings start."""

    def checked(self) -> Settings:
        """The checked settings of the writer, with each `${ENV}` substituted and each path absolute."""
        return writer_settings(self.adaptor, self.settings, self.folder)


AT_LEAST: Mapping[str, int | float] = {"partitions": 1, "piece_rows": 1, "flush_seconds": 0.0, "stop_seconds": 0.0}
"""The least value of each number among a pipeline's settings."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline: one source, one or more branches, a home, and settings."""

    name: str
    home: str
    source: SourceDefinition
    sinks: tuple[SinkDefinition, ...]
    partitions: int = 8
    piece_rows: int = 100_000
    flush_seconds: float = 1.0
    stop_seconds: float = 30.0
    compact_by: CompactBy | None = None
    """What upkeep keeps of the messages that all writers have acknowledged: the last one of each "document", or of each
    "namespace"; None: everything."""
    upkeep_seconds: float | None = 3600.0
    """Seconds between two upkeeps of the home in the background of a run; None: never."""

    def placed(self, folder: str | os.PathLike[str] = ".") -> Definition:
        """This definition with the relative paths of its home, source and sinks starting in a folder: that of the
        pipeline's file, or of the process that builds it.  Tasks have other working folders.  A source or sink that
        was placed before keeps its folder."""
        at = os.path.abspath(folder)
        return replace(
            self,
            home=located(self.home, at),
            source=replace(self.source, folder=self.source.folder or at),
            sinks=tuple(replace(sink, folder=sink.folder or at) for sink in self.sinks),
        )

    def check(self) -> None:
        """Raise `BadSetting` for a definition that cannot run; opens nothing."""
        check_name("pipeline", self.name)
        if self.name.endswith(READ_AHEAD_SUFFIX):
            raise BadSetting(
                f"the pipeline {self.name!r} needs another name: one that does not end in {READ_AHEAD_SUFFIX}"
            )
        check_regex(f"the source of {self.name!r}", self.source.namespace)
        if not self.sinks:
            raise BadSetting(f"the pipeline {self.name!r} has no sink; end a branch with .save(…)")
        if self.compact_by is not None:
            _check_choice(f"compact_by of {self.name!r}", self.compact_by, CompactBy)
        for name, least in AT_LEAST.items():
            _check_number(f"{name} of {self.name!r}", getattr(self, name), least)
        if self.partitions > MAX_PARTITIONS:
            raise BadSetting(f"partitions of {self.name!r} are at most {MAX_PARTITIONS}, not {self.partitions}")
        if self.upkeep_seconds is not None and not (_is_number(self.upkeep_seconds) and self.upkeep_seconds > 0):
            raise BadSetting(f"upkeep_seconds of {self.name!r} is a number above 0, or null for never")
        for sink in self.sinks:
            check_name("writer", sink.name)
            check_regex(f"the writer {sink.name!r}", sink.namespace)
            _check_choice(f"on_error of the writer {sink.name!r}", sink.on_error, OnError)
            _check_choice(f"fill of the writer {sink.name!r}", sink.fill, Fill)
            _check_choice(f"redeliver of the writer {sink.name!r}", sink.redeliver, Redeliver)
        names = [sink.name for sink in self.sinks]
        if len(set(names)) < len(names):
            raise BadSetting(f"two writers of {self.name!r} have the same name; give each its own: .save(…, name=…)")

    def check_settings(self) -> None:
        """Check the settings of the source and the sinks before a reader or writer is made; each `${ENV}` must be
        set."""
        self.source.checked()
        for sink in self.sinks:
            sink.checked()


def _check_choice(what: str, given: object, kind: object) -> None:
    """Refuse a value that is none of a literal type's."""
    if given not in get_args(kind):
        raise BadSetting.unknown(what, str(given), get_args(kind))


def _check_number(what: str, given: object, least: float) -> None:
    """Refuse a value that is no number or too small; it must be a whole number if `least` is one."""
    whole = isinstance(least, int)
    if not _is_number(given) or given < least or (whole and not isinstance(given, int)):
        kind = "a whole number" if whole else "a number"
        raise BadSetting(f"{what} is {kind} of at least {least:g}, not {given!r}")


def _is_number(given: object) -> TypeGuard[int | float]:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def check_regex(what: str, namespace: object) -> None:
    """Refuse a namespace that is not a regular expression."""
    if not isinstance(namespace, str):
        raise BadSetting(f"{what}: the namespace is a regular expression, as text, not {type(namespace).__name__}")
    try:
        re.compile(namespace)
    except re.error as error:
        raise BadSetting(f"{what}: the namespace {namespace!r} is not a regular expression: {error}") from None


def unmatched(what: str, namespace: str, there: Sequence[str]) -> str | None:
    """A message if the regular expression of a namespace in the definition matches none of these names; None if it
    matches one, or there are none."""
    if not there or any(re.search(namespace, name) for name in there):
        return None
    some = ", ".join(sorted(there)[:5]) + ("…" if len(there) > 5 else "")
    return f"the namespace {namespace!r} of {what} matches nothing that is there; there are: {some}"
