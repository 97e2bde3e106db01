"""The builder: how authors write a pipeline in Python.

    tailrace.pipeline("shop", home="./.tailrace")
        .source("postgres", uri="${SHOP_PG}", namespace=r"^public\\.")
        .branch(namespace=r"\\.orders$").transform(omit("card_number"), enrich).save("postgres", uri="${WAREHOUSE}")
        .branch().transform(omit("card_number")).save("file", path="./out", format="parquet")

Every call returns a new pipeline and leaves the old one unchanged.  Nothing is opened before the pipeline runs.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tailrace.adaptors.registry import check_readable, check_writable
from tailrace.errors import BadSetting
from tailrace.home import DEFAULT
from tailrace.log.catalog import check_name
from tailrace.pipeline.define.definition import Definition, Fill, OnError, Redeliver, SinkDefinition, SourceDefinition
from tailrace.pipeline.functions.named import function

NOT_SETTINGS = ("name", "home", "source", "sinks")
TUNING = tuple(f.name for f in fields(Definition) if f.name not in NOT_SETTINGS)
"""The names of the settings of a pipeline as a whole."""


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """A branch without a writer yet: `save` ends it."""

    namespace: str = ".*"
    functions: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline under construction.  `definition` checks it and makes it ready to run."""

    name: str
    home: str = DEFAULT
    settings: dict[str, Any] = field(default_factory=dict)
    reads: SourceDefinition | None = None
    saves: tuple[SinkDefinition, ...] = ()
    open: OpenBranch | None = None

    def source(self, adaptor: str, *, namespace: str = ".*", **settings: Any) -> Pipeline:
        """Set the source: an adaptor, its settings, and a regular expression for the namespaces to read."""
        if self.reads is not None:
            raise BadSetting(f"the pipeline {self.name!r} has a source already; a second one is a second pipeline")
        check_readable(adaptor)
        return replace(self, reads=SourceDefinition(adaptor, settings, namespace), open=OpenBranch())

    def branch(self, namespace: str = ".*", **unknown: Any) -> Pipeline:
        """Begin another branch, for the namespaces that match the regular expression."""
        for given in unknown:
            raise BadSetting.unknown(f"a branch of {self.name!r}", given, ["namespace"])
        if self.open is not None and self.open.functions:
            raise BadSetting(f"a branch of {self.name!r} has no end; end it with .save(…) before the next one")
        return replace(self, open=OpenBranch(namespace))

    def transform(self, *functions: Any) -> Pipeline:
        """Add functions to the branch: those of tailrace.pipeline.functions, any callable over messages, or the text
        file:path.py:name."""
        branch = self._branch("transform")
        made = tuple(function(given) for given in functions)
        return replace(self, open=replace(branch, functions=branch.functions + made))

    def save(
        self,
        adaptor: str,
        *,
        name: str | None = None,
        on_error: OnError = "stop",
        fill: Fill = "log",
        redeliver: Redeliver = "halves",
        **settings: Any,
    ) -> Pipeline:
        """End the branch that is being built with a writer: an adaptor and its settings.

        The writer's progress is stored under `name`.  `fill` says what a writer that is added later starts with: the
        commit log from its start ("log"), or a fresh copy of the source ("copy").  `redeliver` says how a failed batch
        is delivered again: halved until each failing message is found ("halves"), or message by message ("singly")."""
        branch = self._branch("save")
        check_writable(adaptor)
        name = default_name(adaptor, [sink.name for sink in self.saves]) if name is None else name
        sink = SinkDefinition(name, adaptor, settings, branch.namespace, branch.functions, on_error, fill, redeliver)
        return replace(self, saves=(*self.saves, sink), open=None)

    def _branch(self, what: str) -> OpenBranch:
        if self.reads is None:
            raise BadSetting(f"the pipeline {self.name!r} has no source yet; .source(…) comes before .{what}(…)")
        if self.open is None:
            raise BadSetting(f".{what}(…) follows .save(…), which ended its branch; begin another: .branch().{what}(…)")
        return self.open

    def definition(self) -> Definition:
        """The checked definition of this pipeline; `BadSetting` if it cannot run."""
        if self.reads is None:
            raise BadSetting(f"the pipeline {self.name!r} has no source; say where it reads: .source(…)")
        if self.open is not None and (self.open.functions or self.open.namespace != ".*"):
            raise BadSetting(f"the last branch of {self.name!r} has no end; end it with .save(…)")
        made = Definition(self.name, self.home, self.reads, self.saves, **self.settings)
        made.check()
        return made


def pipeline(name: str, home: str | os.PathLike[str] = DEFAULT, **settings: Any) -> Pipeline:
    """Begin a pipeline.  Settings: partitions, piece_rows, flush_seconds, stop_seconds, compact_by, upkeep_seconds."""
    for given in settings:
        if given not in TUNING:
            raise BadSetting.unknown(f"the pipeline {name!r}", given, TUNING)
    return Pipeline(check_name("pipeline", name), os.fspath(home), settings)


def default_name(adaptor: str, taken: list[str]) -> str:
    """The name of a writer to which its author gave none, from its adaptor: "postgres", then "postgres-2"."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", adaptor.rpartition(":")[2])
    numbers = (f"{base}-{n}" for n in range(2, len(taken) + 3))
    return base if base not in taken else next(name for name in numbers if name not in taken)


def check_file_name(file: Path) -> None:
    """Refuse a name of a pipeline's file that would hide a standard module from Spark's workers, which search this
    folder first."""
    if file.suffix == ".py" and file.stem in sys.stdlib_module_names:
        raise BadSetting(
            f"{file.name} has the name of a module of Python's own, which no process in its folder could import "
            f"any more; call it otherwise, such as {file.stem}_pipeline.py"
        )


def load(path: str | os.PathLike[str]) -> Definition:
    """Load the pipeline of a file: TOML, or Python that assigns one to the name `pipeline`.

    Relative paths in it start in the file's folder."""
    from tailrace.pipeline.define.toml import load_toml
    from tailrace.pipeline.functions.files import run_file

    file = Path(path)
    if file.suffix == ".toml":
        return load_toml(file).placed(file.parent)
    if file.suffix != ".py":
        raise BadSetting(f"a pipeline's file ends in .py or .toml, not {file.name!r}")
    check_file_name(file)
    found = getattr(run_file(file), "pipeline", None)
    if isinstance(found, Pipeline):
        return found.definition().placed(file.parent)
    if isinstance(found, Definition):
        found.check()
        return found.placed(file.parent)
    raise BadSetting(f"{file} gives no pipeline the name `pipeline`: pipeline = tailrace.pipeline(…).source(…)…")
