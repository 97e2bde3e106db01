"""The registry: finds adaptors by name, checks their settings, and makes readers and writers from them."""

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
"""The settings of a reader or writer: as the pipeline file has them, or checked already, with every `${ENV}`
substituted."""
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
"""The adaptors of tailrace itself.  They are listed here because a Spark worker may have tailrace as a file only,
without the entry points of an installed package."""


@cache
def places() -> dict[str, str]:
    """Where each adaptor is ("package.module:name"), by its name: tailrace's own and those of all installed
    packages."""
    return {**{point.name: point.value for point in entry_points(group="tailrace.adaptors")}, **OURS}


def adaptors() -> dict[str, Adaptor]:
    """All adaptors that can be loaded, by name.  `broken` has the others."""
    return {name: found for name in places() if isinstance(found := _tried(name), Adaptor)}


def broken() -> dict[str, str]:
    """The adaptors that cannot be loaded, each with the error.  A broken adaptor does not prevent the use of the
    others."""
    return {name: str(found) for name in places() if isinstance(found := _tried(name), BadSetting)}


def adaptor(name: str) -> Adaptor:
    """Find an adaptor by its name, or by where it is ("package.module:name").

    Raises `BadSetting` if there is none; the error suggests the name that is most like the given one."""
    if "://" in name or "@" in name:  # perhaps a URI with a password, which an error must not repeat
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
    except Exception as error:  # importing another author's package may raise anything
        raise BadSetting(f"there is no adaptor at {place!r}: {type(error).__name__}: {error}") from None
    if not isinstance(found, Adaptor):
        raise BadSetting(f"what is at {place!r} is not an Adaptor")
    return found


def make_reader(name: str, given: Given) -> Reader:
    """Make a reader of the adaptor with this name.  Raises `BadSetting` if the settings are wrong."""
    made, found = reader_settings(name, given), adaptor(name)
    return found.reader(made)  # type: ignore[misc, call-arg]


def make_writer(name: str, given: Given) -> Writer:
    """Make a writer of the adaptor with this name.  Raises `BadSetting` if the settings are wrong."""
    made, found = writer_settings(name, given), adaptor(name)
    return found.writer(made)  # type: ignore[misc, call-arg]


def check_readable(name: str) -> type[Settings]:
    """Return the class of an adaptor's reader settings.  Raises `BadSetting` if there is no such adaptor, or if it has
    no reader."""
    found = adaptor(name)
    if found.reader is None or found.reader_settings is None:
        raise BadSetting(f"{name!r} cannot be read from; `tailrace about {name}` says what it can do")
    return found.reader_settings


def check_writable(name: str) -> type[Settings]:
    """Return the class of an adaptor's writer settings.  Raises `BadSetting` if there is no such adaptor, or if it has
    no writer."""
    found = adaptor(name)
    if found.writer is None or found.writer_settings is None:
        raise BadSetting(f"{name!r} cannot be written to; `tailrace about {name}` says what it can do")
    return found.writer_settings


def reader_settings(name: str, given: Given, folder: str = "") -> Settings:
    """Check the settings of a reader, substitute environment variables, and make relative paths absolute.

    The driver does this and passes the result to tasks, which have another environment and another working folder."""
    kind = check_readable(name)
    return given if isinstance(given, Settings) else settings(f"the source {name!r}", kind, given, folder)


def writer_settings(name: str, given: Given, folder: str = "") -> Settings:
    """Check the settings of a writer, as `reader_settings` does for a reader."""
    kind = check_writable(name)
    return given if isinstance(given, Settings) else settings(f"the sink {name!r}", kind, given, folder)


def settings(what: str, kind: type[S], given: Mapping[str, Any], folder: str = "") -> S:
    """Make settings of class `kind` from names and values, with every `${ENV}` substituted.

    Raises `BadSetting` for an unknown name, a wrong type, a missing setting or an environment variable that is not set.
    The errors name the setting but never its value, which may be a secret.  With a `folder`, relative paths become
    absolute, starting from this folder; without one they stay relative."""
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
    """Make a relative path in an adaptor's setting absolute, starting from `folder`, so that it means the same in every
    process.  A URL, an empty text and a value that is no text are returned unchanged."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.abspath(os.path.join(folder, value))


@cache
def _paths(kind: type[Settings]) -> tuple[str, ...]:
    """The names of the settings of type `Located`."""
    hints = get_type_hints(kind, include_extras=True)
    marked = {name for name, hint in hints.items() if _is_path(getattr(hint, "__metadata__", ()))}
    return tuple(f.encode_name for f in msgspec.structs.fields(kind) if f.name in marked)


def _is_path(metadata: tuple[Any, ...]) -> bool:
    return any(isinstance(one, PathMark) for one in metadata)


def substitute(what: str, name: str, value: Any) -> Any:
    """Replace every `${NAME}` in a text, or in the texts of a dictionary or a list, from the environment.  Raises
    `BadSetting` if an environment variable is not set."""
    if isinstance(value, dict):
        return {key: substitute(what, f"{name}.{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [substitute(what, f"{name}[{n}]", one) for n, one in enumerate(value)]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise BadSetting(f"{what}: {name} uses ${{{match[1]}}}, which is not set; export {match[1]}=…")
        return os.environ[match[1]]

    return _ENV.sub(found, value)
