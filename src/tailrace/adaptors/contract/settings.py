"""Settings: the base class of the settings of readers and writers, and the types of settings that several adaptors
share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta


class PathMark:
    """The mark of a setting that is a path or may be one."""


Located: TypeAlias = Annotated[str, PathMark()]
"""The type of a setting that names a file, a folder or a home.  The driver makes a relative path absolute, starting
from the folder of the pipeline's file, because tasks have another working folder."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a reader or writer.  Subclass it; `tailrace about` shows each field's type, its default and the
    `description` of its `Meta`.

    Mark a setting that holds a password with `secret`, so that no log and no error shows it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What rich shows, for example in tracebacks.  msgspec's own method would show secrets, too."""
        fields = msgspec.structs.fields(type(self))
        return [(f.name, _HIDDEN if _is_secret(f.type) else getattr(self, f.name)) for f in fields]


class _Hidden:
    def __repr__(self) -> str:
        return "***"


_HIDDEN = _Hidden()


def secret(description: str) -> Meta:
    """Return the `Meta` of an adaptor's setting that holds a password."""
    return Meta(description=description, extra={"secret": True})


def _is_secret(type: Any) -> bool:
    marks = (mark for mark in getattr(type, "__metadata__", ()) if isinstance(mark, Meta))
    return any((mark.extra or {}).get("secret") for mark in marks) or any(map(_is_secret, get_args(type)))


Altered: TypeAlias = Annotated[
    Literal["copy", "leave"],
    Meta(
        description="tables to whose rows ALTER TABLE did what no log says (a default, a new name or type): 'copy' "
        "copies them again, 'leave' leaves each row until it changes"
    ),
]
BatchRows: TypeAlias = Annotated[int, Meta(description="the most rows in one batch of changes", ge=1)]
BatchBytes: TypeAlias = Annotated[int, Meta(description="about the most bytes in one batch", ge=1024)]
Linger: TypeAlias = Annotated[float, Meta(description="seconds between two batches of changes, at least", ge=0)]
Patience: TypeAlias = Annotated[
    float, Meta(description="seconds to wait for other transactions before saying which are in the way", ge=0)
]
Create: TypeAlias = Annotated[bool, Meta(description="create tables that are missing")]
