"""TOML pipelines: the same definitions as in Python, from a file.

    name = "shop"

    [source]
    adaptor = "postgres"
    uri = "${SHOP_PG}"
    namespace = '^public\\.'

    [[branch]]
    namespace = '\\.orders$'
    functions = [{omit = "card_number"}, "file:enrich.py:enrich"]
    save = {adaptor = "postgres", uri = "${WAREHOUSE}", on_error = "dead_letter"}

    [[branch]]
    functions = [{omit = "card_number"}]
    [branch.save]
    adaptor = "file"
    path = "./out"
    format = "parquet"

An error names the wrong line.  `${ENV}` is substituted when the pipeline runs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tailrace.adaptors.contract import Settings
from tailrace.adaptors.registry import adaptor
from tailrace.errors import BadInput, BadSetting
from tailrace.pipeline.define.builder import TUNING, Pipeline, pipeline
from tailrace.pipeline.define.definition import Definition, check_regex
from tailrace.pipeline.functions.named import function

T = TypeVar("T")
_HEADER = re.compile(r"\s*\[+\s*([^\[\]]+?)\s*\]+\s*(#.*)?$")


def load_toml(path: Path) -> Definition:
    """Load the pipeline of a TOML file; `BadInput` if it cannot be read."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    return parse_toml(text, str(path), path.parent)


def parse_toml(text: str, where: str = "pipeline.toml", folder: Path | None = None) -> Definition:
    """Parse the pipeline of a TOML text; `where` names it in errors, `folder` has the files of its functions."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{where}: {error}") from None
    return _Checked(text, where, folder or Path()).definition(given)


class _Checked:
    """Checks the values of one file, and finds the line of each for errors."""

    def __init__(self, text: str, where: str, folder: Path) -> None:
        self._lines, self._where, self._folder = text.splitlines(), where, folder

    def definition(self, given: Mapping[str, Any]) -> Definition:
        """The definition; raises the first error with its line."""
        self._known("a pipeline", given, ("name", "home", "source", "branch", *TUNING), "")
        self._needs("a pipeline", given, {"name": str, "source": dict, "branch": list}, "")
        self._kinds(given, {"home": str}, "")
        plan = self._told("", "name", lambda: self._begin(given))
        plan = self._told("source", "namespace", lambda: self._source(plan, given["source"]))
        for n, branch in enumerate(given["branch"]):
            plan = self._branch(plan, branch, n)
        return self._told("", "name", plan.definition)

    def _begin(self, given: Mapping[str, Any]) -> Pipeline:
        return pipeline(given["name"], **{k: v for k, v in given.items() if k in ("home", *TUNING)})

    def _source(self, plan: Pipeline, source: Mapping[str, Any]) -> Pipeline:
        self._needs("the source", source, {"adaptor": str}, "source")
        settings = {k: v for k, v in source.items() if k not in ("adaptor", "namespace")}
        self._settings(f"the source {source['adaptor']!r}", source["adaptor"], settings, "source", reads=True)
        check_regex("the source", source.get("namespace", ".*"))
        return plan.source(source["adaptor"], namespace=source.get("namespace", ".*"), **settings)

    def _branch(self, plan: Pipeline, branch: Any, n: int) -> Pipeline:
        table = f"branch#{n}"
        if not isinstance(branch, dict):
            raise self._error(f"a branch is a table, not {_called(type(branch))}", "", "branch")
        self._known("a branch", branch, ("namespace", "functions", "save"), table)
        self._needs("a branch", branch, {"save": dict}, table)
        self._kinds(branch, {"functions": list}, table)
        self._told(table, "namespace", lambda: check_regex("a branch", branch.get("namespace", ".*")))
        plan = plan.branch(branch.get("namespace", ".*"))
        made = [
            self._told(table, "functions", partial(function, given, self._folder))
            for given in branch.get("functions", [])
        ]
        return self._told(table, "save", lambda: self._save(plan.transform(*made), branch["save"], table))

    def _save(self, plan: Pipeline, save: Mapping[str, Any], table: str) -> Pipeline:
        self._needs("save", save, {"adaptor": str}, f"{table}.save")
        settings = {k: v for k, v in save.items() if k not in ("adaptor", "name", "on_error", "fill", "redeliver")}
        self._settings(f"the sink {save['adaptor']!r}", save["adaptor"], settings, f"{table}.save", reads=False)
        return plan.save(**save)

    # -- checks
    def _known(self, what: str, given: Mapping[str, Any], known: Iterable[str], table: str) -> None:
        for name in given:
            if name not in known:
                raise self._error(str(BadSetting.unknown(what, name, known)), table, name)

    def _needs(self, what: str, given: Any, needed: Mapping[str, type], table: str) -> None:
        for name in needed:
            if name not in given:
                raise self._error(f"{what} needs {name!r}", table)
        self._kinds(given, needed, table)

    def _kinds(self, given: Mapping[str, Any], kinds: Mapping[str, type], table: str) -> None:
        for name, kind in kinds.items():
            if name in given and not isinstance(given[name], kind):
                raise self._error(f"{name!r} is {_called(kind)}, not {_called(type(given[name]))}", table, name)

    def _settings(self, what: str, name: str, given: Mapping[str, Any], table: str, *, reads: bool) -> None:
        """Check the settings of a source or sink, as far as possible before `${ENV}` is known."""
        found = self._told(table, "adaptor", lambda: adaptor(name))
        kind = found.reader_settings if reads else found.writer_settings
        if kind is None:
            end = "read from" if reads else "written to"
            raise self._error(
                f"{name!r} cannot be {end}; `tailrace about {name}` says what it can do", table, "adaptor"
            )
        known = {f.encode_name: f for f in msgspec.structs.fields(kind)}
        self._known(what, given, known, table)
        for setting, value in given.items():
            self._told(table, setting, partial(check_setting, what, kind, setting, value))
        for setting, described in known.items():
            if described.required and setting not in given:
                raise self._error(f"{what} needs {setting!r}", table)

    # -- where things are
    def _told(self, table: str, key: str, make: Callable[[], T]) -> T:
        """Return what `make` returns; adds the line to an error that it raises."""
        try:
            return make()
        except BadInput as error:
            if str(error).startswith(self._where):
                raise
            raise self._error(str(error), table, key) from error

    def _error(self, message: str, table: str, key: str | None = None) -> BadSetting:
        return BadSetting(f"{self._where}, line {self._line(table, key)}: {message}")

    def _line(self, table: str, key: str | None) -> int:
        """The line of a key in a table ("branch#1.save" is the save of the second branch), or of the table."""
        name, number = re.sub(r"#\d+", "", table), re.search(r"#(\d+)", table)
        first = self._header("branch", int(number[1])) if number else 0
        start = self._table(name, first) if name else 0
        if key is not None:
            pattern = re.compile(rf'(?:^|[\s{{,"\'.]){re.escape(key)}["\']?\s*(?:=|\.)')
            for at in range(start, len(self._lines)):
                if pattern.search(self._lines[at].partition("#")[0]) or self._is_header(at, f"{name}.{key}".strip(".")):
                    return at + 1
        return start + 1

    def _table(self, name: str, first: int) -> int:
        """The index of the line where a table starts: its header, or the line that has it inline."""
        for at in range(first, len(self._lines)):
            if self._is_header(at, name) or re.match(rf"\s*{name.rpartition('.')[2]}\s*=", self._lines[at]):
                return at
        return first

    def _header(self, name: str, number: int) -> int:
        found = [at for at in range(len(self._lines)) if self._is_header(at, name)]
        return found[number] if number < len(found) else 0

    def _is_header(self, at: int, name: str) -> bool:
        match = _HEADER.match(self._lines[at])
        return bool(match and re.sub(r"\s", "", match[1]) == name)


def check_setting(what: str, kind: type[Settings], name: str, value: Any) -> None:
    """Refuse a value of a TOML setting that has the wrong type; accepts any text with `${ENV}` in it, whose value is
    not known yet."""
    if isinstance(value, str) and "${" in value:
        return
    described = next(f for f in msgspec.structs.fields(kind) if f.encode_name == name)
    try:
        msgspec.convert(value, described.type, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{what}: {name!r}: {error}") from None


def _called(kind: type) -> str:
    return {str: "text", dict: "a table", list: "an array", int: "a number"}.get(kind, f"a {kind.__name__}")
