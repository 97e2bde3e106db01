"""The registry: finds adaptors by name, and makes readers and writers from settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, TypeVar, get_type_hints

import msgspec

from tailrace.adaptors.contract import Adaptor, PathMark, Reader, Settings, Writer
from tailrace.errors import BadSetting

S = TypeVar("S", bound=Settings)
Given: TypeAlias = Mapping[str, Any] | Settings
"""Settings as a pipeline's file has them, or already checked and with every `${ENV}` substituted."""
_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


OURS = {
    "delta": "tailrace.adaptors.delta:adaptor",
    "dynamodb": "tailrace.adaptors.dynamodb:adaptor",
    "file": "tailrace.adaptors.file:FILE",
    "http": "tailrace.adaptors.http:adaptor",
    "kafka": "tailrace.adaptors.kafka:adaptor",
    "mongodb": "tailrace.adaptors.mongodb:adaptor",
    "mysql": "tailrace.adaptors.mysql:adaptor",
    "opensearch": "tailrace.adaptors.opensearch:adaptor",
    "postgres": "tailrace.adaptors.postgres:adaptor",
    "rabbitmq": "tailrace.adaptors.rabbitmq:adaptor",
    "stdout": "tailrace.adaptors.stdout:STDOUT",
    "tailrace": "tailrace.adaptors.topic:TAILRACE",
}
"""tailrace's own adaptors.  They are not looked up as entry points, because a Spark worker on another host may have
tailrace only as a file and not as an installed package."""


@cache
def places() -> dict[str, str]:
    """The place of each adaptor ("package.module:name"), by name: tailrace's own, and those of installed packages."""
    return {**{point.name: point.value for point in entry_points(group="tailrace.adaptors")}, **OURS}


def adaptors() -> dict[str, Adaptor]:
    """All adaptors that can be loaded, by name.  `broken` says why the others cannot."""
    return {name: found for name in places() if isinstance(found := _tried(name), Adaptor)}


def broken() -> dict[str, str]:
    """The adaptors that cannot be loaded, with the reason for each.  They do not keep others from loading."""
    return {name: str(found) for name in places() if isinstance(found := _tried(name), BadSetting)}


def adaptor(name: str) -> Adaptor:
    """Load the adaptor of this name, or at this place ("package.module:name").  `BadSetting` if there is none; it
    suggests the nearest name."""
    if "://" in name or "@" in name:  # not shown, because it may have a password
        raise BadSetting(
            "an adaptor is named first, as 'postgres' is; where to find its data is a setting: uri=…, path=…"
        )
    if ":" in name:
        return _at(name)
    if name not in places():
        raise BadSetting.unknown("tailrace", name, places())
    return _at(places()[name])


def _tried(name: str) -> Adaptor | BadSetting:
    try:
        return adaptor(name)
    except BadSetting as error:
        return error


def _at(place: str) -> Adaptor:
    try:
        found = EntryPoint("", place, "").load()
    except Exception as error:  # another author's package may raise anything when it is imported
        raise BadSetting(f"there is no adaptor at {place!r}: {type(error).__name__}: {error}") from None
    if not isinstance(found, Adaptor):
        raise BadSetting(f"what is at {place!r} is not an Adaptor")
    return found


def make_reader(name: str, given: Given) -> Reader:
    """Make a reader from the settings in a pipeline's file."""
    made, found = reader_settings(name, given), adaptor(name)
    return found.reader(made)  # type: ignore[misc, call-arg]


def make_writer(name: str, given: Given) -> Writer:
    """Make a writer from the settings in a pipeline's file."""
    made, found = writer_settings(name, given), adaptor(name)
    return found.writer(made)  # type: ignore[misc, call-arg]


def check_readable(name: str) -> type[Settings]:
    """The type of a reader's settings.  `BadSetting` if there is no such adaptor, or it has no reader."""
    found = adaptor(name)
    if found.reader is None or found.reader_settings is None:
        raise BadSetting(f"{name!r} cannot be read from; `tailrace about {name}` says what it can do")
    return found.reader_settings


def check_writable(name: str) -> type[Settings]:
    """The type of a writer's settings.  `BadSetting` if there is no such adaptor, or it has no writer."""
    found = adaptor(name)
    if found.writer is None or found.writer_settings is None:
        raise BadSetting(f"{name!r} cannot be written to; `tailrace about {name}` says what it can do")
    return found.writer_settings


def reader_settings(name: str, given: Given, folder: str = "") -> Settings:
    """A reader's settings, checked and complete, so that tasks with another environment and working folder can use
    them."""
    kind = check_readable(name)
    return given if isinstance(given, Settings) else settings(f"the source {name!r}", kind, given, folder)


def writer_settings(name: str, given: Given, folder: str = "") -> Settings:
    """A writer's settings, checked and complete, so that tasks with another environment and working folder can use
    them."""
    kind = check_writable(name)
    return given if isinstance(given, Settings) else settings(f"the sink {name!r}", kind, given, folder)


def settings(what: str, kind: type[S], given: Mapping[str, Any], folder: str = "") -> S:
    """Make settings from names and values, with every `${ENV}` substituted.  `BadSetting` for an unknown name, a wrong
    type, a missing setting, or a variable that is not set.

    A relative path is taken from `folder`; without one it stays relative.  Error messages name a setting and never show
    its value, which may be a secret."""
    known = {f.encode_name for f in msgspec.structs.fields(kind)}
    for name in given:
        if name not in known:
            raise BadSetting.unknown(what, name, known)
    for field in msgspec.structs.fields(kind):
        if field.required and field.encode_name not in given:
            raise BadSetting(f"{what} needs {field.encode_name!r}")
    for name, value in given.items():
        if value is ...:
            raise BadSetting(f"{what}: {name!r} is still to be filled in; `tailrace about ADAPTOR` says what it is")
    filled = {name: substitute(what, name, value) for name, value in given.items()}
    if folder:
        filled |= {name: located(filled[name], folder) for name in _paths(kind) if name in filled}
    try:
        return msgspec.convert(filled, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{what}: {error}") from None


def located(value: Any, folder: str) -> Any:
    """A path or a home's URL, valid in every process: a relative path is taken from `folder`."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.abspath(os.path.join(folder, value))


@cache
def _paths(kind: type[Settings]) -> tuple[str, ...]:
    """The names of the settings that are marked as paths (`PathMark`)."""
    hints = get_type_hints(kind, include_extras=True)
    marked = {name for name, hint in hints.items() if _is_path(getattr(hint, "__metadata__", ()))}
    return tuple(f.encode_name for f in msgspec.structs.fields(kind) if f.name in marked)


def _is_path(metadata: tuple[Any, ...]) -> bool:
    return any(isinstance(one, PathMark) for one in metadata)


def substitute(what: str, name: str, value: Any) -> Any:
    """The value of a setting with every `${NAME}` replaced from the environment, in dictionaries, too.  `BadSetting` if
    a variable is not set."""
    if isinstance(value, dict):
        return {key: substitute(what, f"{name}.{key}", one) for key, one in value.items()}
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise BadSetting(f"{what}: {name} uses ${{{match[1]}}}, which is not set; export {match[1]}=…")
        return os.environ[match[1]]

    return _ENV.sub(found, value)
