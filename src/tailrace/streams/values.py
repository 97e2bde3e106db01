"""Values: how Python types become values that a table can hold, and back.

| in the model | in the table |
|---|---|
| str, UUID, date, datetime (with a zone; kept in UTC, so that they sort) | text |
| int, Decimal, float | a number: at most 38 digits |
| bool, bytes | as they are |
| list[T], dict[str, T], a nested dataclass | a list, a map |
| set[T] of texts, numbers or bytes | a set; an empty one is left out |
| an Enum | its value |
| T \\| None | left out at the top of an item, null inside it |
| a type of your own | as `store_as` says |

A value that a table cannot hold raises an error here, before the engine sends anything.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from tailrace.errors import BadModel
from tailrace.storage.limits import MAX_DEPTH
from tailrace.storage.tables import Value

Kind: TypeAlias = Literal["S", "N", "B", "BOOL", "L", "M", "SS", "NS", "BS", "any"]

MAX_DIGITS = 38
MAX_EXPONENT, MIN_EXPONENT = 125, -130


class Missing:
    """The type of `MISSING`, which says that an item leaves an attribute out."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Stored(NamedTuple):
    """How values of a type are stored: the kind of attribute, and the functions for both directions.

    Both functions raise ValueError or TypeError, with a reason that reads on from the name of the attribute."""

    kind: Kind
    dump: Callable[[Any], Value]
    load: Callable[[Value], Any]
    absent: Callable[[], Any] | None = None
    """Returns the value that a missing attribute stands for; None: the attribute is required."""


_own: dict[type, Stored] = {}


def store_as(kind: type, base: type, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Make models accept a type of your own: `dump` turns its values into values of `base`, `load` turns them back."""
    inner = stored(base)

    def dumped(value: Any) -> Value:
        if not isinstance(value, kind):
            raise TypeError(f"must be a {kind.__name__}, not {value!r:.60}")
        return inner.dump(dump(value))

    _own[kind] = Stored(inner.kind, dumped, lambda value: load(inner.load(value)))


def stored(annotation: Any) -> Stored:
    """Return how values of an annotated type are stored; `BadModel` for a type that no table can hold."""
    if annotation in _own:
        return _own[annotation]
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _optional(annotation, arguments)
    if origin is typing.Annotated:
        return stored(arguments[0])
    if origin is list and arguments:
        return _list(stored(arguments[0]))
    if origin is dict and arguments:
        if arguments[0] is not str:
            raise BadModel(f"a map in a table has texts as keys, so dict[str, …], not {annotation}")
        return _map(stored(arguments[1]))
    if origin in (set, frozenset) and arguments:
        return _set(stored(arguments[0]), origin)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return nested(annotation)
    name = getattr(annotation, "__name__", annotation)
    raise BadModel(f"a table cannot hold a {name}; store_as({name}, str, dump, load) teaches it")


def number(value: Any) -> int | Decimal:
    """Return a number that a table holds exactly; TypeError for anything else than a number, ValueError if it does not
    fit."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise TypeError(f"must be a number, not {value!r:.60}")
    exact = Decimal(value)
    if not exact.is_finite():
        raise ValueError(f"is {value}, and a table holds finite numbers only")
    digits = len(exact.normalize(_WIDE).as_tuple().digits)
    if digits > MAX_DIGITS:
        raise ValueError(f"has {digits} digits; a table holds {MAX_DIGITS}")
    if exact and not MIN_EXPONENT <= exact.adjusted() <= MAX_EXPONENT:
        raise ValueError(f"is {value:.3E}; a table holds numbers from 1E{MIN_EXPONENT} to 1E{MAX_EXPONENT + 1}")
    return value


def plain(value: Any, level: int = 1) -> Value:
    """Check that a table can hold a value, with all values inside it, and return the value that is stored."""
    if level > MAX_DEPTH:
        raise ValueError(f"has more than {MAX_DEPTH} levels of lists and maps, the most that a table holds")
    match value:
        case None | bool() | bytes():
            return value
        case str():
            return _text_dump(value)
        case int() | Decimal():
            return number(value)
        case float():
            return _float_dump(value)
        case list() | tuple():
            return [plain(inner, level + 1) for inner in value]
        case Mapping():
            return {_text_dump(name): plain(inner, level + 1) for name, inner in value.items()}
        case set() | frozenset():
            return _plain_set(value)
    raise TypeError(f"is a {type(value).__name__}, which a table cannot hold")


# --- the types ------------------------------------------------------------------------------------------------------
def _exactly(kind: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if type(value) is kind:
            return value
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"must be {_article(kind.__name__)}, not {value!r:.60}")
        return value

    return checked


def _article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


_text = _exactly(str)


def _text_dump(value: Any) -> Value:
    text: str = _text(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"has half of a surrogate pair at position {error.start}, which is no text in UTF-8") from None
    return text


def _int_dump(value: Any) -> Value:
    return number(_exactly(int)(value))


def _int_load(value: Value) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or value != int(value):
        raise ValueError(f"must be a whole number, not {value!r:.60}")
    return int(value)


def _decimal_load(value: Value) -> Decimal:
    return Decimal(number(value))


def _float_dump(value: Any) -> Value:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"must be a float, not {value!r:.60}")
    if not math.isfinite(value):
        raise ValueError(f"is {value}, and a table holds finite numbers only")
    return number(Decimal(repr(float(value))))


def _float_load(value: Value) -> float:
    return float(number(value))


def _datetime_dump(value: Any) -> Value:
    moment = _exactly(datetime)(value)
    if moment.tzinfo is None:
        raise ValueError(f"is {value!r}, which has no time zone; say which: datetime.now(UTC)")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _date_dump(value: Any) -> Value:
    if isinstance(value, datetime):
        raise TypeError(f"must be a date, not the moment {value!r}")
    return _exactly(date)(value).isoformat()


def _plain_set(value: Any) -> Value:
    kinds = {type(plain(member)) for member in value}
    if not value or not (kinds <= {int, Decimal} or kinds == {str} or kinds == {bytes}):
        raise ValueError("is a set; a table holds sets that are not empty, of texts, of numbers or of bytes")
    return frozenset(value)


def _parsed(kind: type, parse: Callable[[str], Any]) -> Callable[[Value], Any]:
    def load(value: Value) -> Any:
        return parse(_text(value))

    load.__name__ = f"load_{kind.__name__}"
    return load


_PLAIN: dict[Any, Stored] = {
    str: Stored("S", _text_dump, _text),
    int: Stored("N", _int_dump, _int_load),
    Decimal: Stored("N", lambda value: number(_exactly(Decimal)(value)), _decimal_load),
    float: Stored("N", _float_dump, _float_load),
    bool: Stored("BOOL", _exactly(bool), _exactly(bool)),
    bytes: Stored("B", _exactly(bytes), _exactly(bytes)),
    datetime: Stored("S", _datetime_dump, _parsed(datetime, datetime.fromisoformat)),
    date: Stored("S", _date_dump, _parsed(date, date.fromisoformat)),
    UUID: Stored("S", lambda value: str(_exactly(UUID)(value)), _parsed(UUID, UUID)),
    list: Stored("L", lambda value: plain(_exactly(list)(value)), _exactly(list)),
    dict: Stored("M", lambda value: plain(_exactly(dict)(value)), _exactly(dict)),
    Any: Stored("any", plain, lambda value: value),
}


# --- types made of others -------------------------------------------------------------------------------------------
def _optional(annotation: Any, arguments: tuple[Any, ...]) -> Stored:
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) != 1 or len(others) == len(arguments):
        raise BadModel(
            f"a field has one type, or one type and None, not {annotation}: a table does not tell them apart"
        )
    inner = stored(others[0])
    return Stored(
        inner.kind,
        lambda value: None if value is None else inner.dump(value),
        lambda value: None if value is None else inner.load(value),
        lambda: None,
    )


def _list(inner: Stored) -> Stored:
    def dump(value: Any) -> Value:
        return [_at(n, inner.dump, member) for n, member in enumerate(_exactly(list)(value))]

    def load(value: Value) -> Any:
        return [_at(n, inner.load, member) for n, member in enumerate(_exactly(list)(value))]

    return Stored("L", dump, load)


def _map(inner: Stored) -> Stored:
    def dump(value: Any) -> Value:
        return {_text_dump(name): _at(name, inner.dump, member) for name, member in _exactly(dict)(value).items()}

    def load(value: Value) -> Any:
        return {name: _at(name, inner.load, member) for name, member in _exactly(dict)(value).items()}

    return Stored("M", dump, load)


def _set(inner: Stored, kind: type) -> Stored:
    if inner.kind not in ("S", "N", "B"):
        raise BadModel(f"a set in a table has texts, numbers or bytes as members, not values of kind {inner.kind}")

    def dump(value: Any) -> Value:
        if not isinstance(value, (set, frozenset)):
            raise TypeError(f"must be a set, not {value!r:.60}")
        return frozenset(map(inner.dump, value)) or MISSING

    def load(value: Value) -> Any:
        if not isinstance(value, (set, frozenset)):
            raise TypeError(f"must be a set, not {value!r:.60}")
        return kind(map(inner.load, value))

    return Stored(typing.cast(Kind, f"{inner.kind}S"), dump, load, kind)


def _enum(kind: type[enum.Enum]) -> Stored:
    types_of = {type(member.value) for member in kind}
    if len(types_of) != 1 or not types_of <= _PLAIN.keys():
        raise BadModel(f"the members of {kind.__name__} must all have values of one type that a table can hold")
    inner = _PLAIN[types_of.pop()]
    return Stored(
        inner.kind, lambda value: inner.dump(_exactly(kind)(value).value), lambda value: kind(inner.load(value))
    )


class Field(NamedTuple):
    """A field of a dataclass and how it is stored."""

    name: str
    stored: Stored
    default: Callable[[], Any] | None
    """Returns the value that a missing attribute stands for; None: the attribute is required."""


def fields_of(kind: type, names: Mapping[str, Any] | None = None) -> tuple[Field, ...]:
    """Return the fields of a dataclass, each with how it is stored.  `names` are names that its annotations may use in
    addition to those of its module: the local ones of a class that is defined in a function."""
    try:
        hints = typing.get_type_hints(kind, localns=dict(names or {}), include_extras=True)
    except NameError as error:
        raise BadModel(f"an annotation of {kind.__name__} cannot be understood: {error}") from None
    return tuple(_field(kind, field, hints[field.name]) for field in dataclasses.fields(kind) if field.init)


def _field(kind: type, field: dataclasses.Field[Any], annotation: Any) -> Field:
    try:
        how = stored(annotation)
    except BadModel as error:
        raise BadModel(f"{kind.__name__}.{field.name}: {error}") from None
    default = how.absent
    if field.default is not dataclasses.MISSING:
        default = lambda: field.default  # noqa: E731
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory
    return Field(field.name, how, default)


def dump_fields(fields: tuple[Field, ...], value: Any) -> dict[str, Value]:
    """Return the attributes that store an instance of a dataclass; those that an item leaves out are `MISSING`."""
    return {field.name: _at(field.name, field.stored.dump, getattr(value, field.name)) for field in fields}


def load_fields(kind: type, fields: tuple[Field, ...], item: Mapping[str, Value]) -> Any:
    """Make an instance of a dataclass from an item's attributes; ignores attributes that are not fields."""
    try:
        return kind(**{name: how.load(item[name]) for name, how, _ in fields})
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return _load_each(kind, fields, item)


def _load_each(kind: type, fields: tuple[Field, ...], item: Mapping[str, Value]) -> Any:
    """Load field by field, so that missing attributes get their defaults and an error names its field."""
    values = {}
    for field in fields:
        if field.name in item:
            values[field.name] = _at(field.name, field.stored.load, item[field.name])
        elif field.default is None:
            raise ValueError(f".{field.name} is not there")
        else:
            values[field.name] = field.default()
    return kind(**values)


def nested(kind: type) -> Stored:
    """Return how a value that is a dataclass is stored inside an item: as a map of its fields."""
    fields = fields_of(kind)

    def dump(value: Any) -> Value:
        return {n: v for n, v in dump_fields(fields, _exactly(kind)(value)).items() if v is not MISSING}

    return Stored("M", dump, lambda value: load_fields(kind, fields, _exactly(dict)(value)))


def _at(step: str | int, way: Callable[[Any], Any], value: Any) -> Any:
    """Apply `way` to a value, and prefix its error with the value's place in the item."""
    try:
        return way(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        place = f"[{step}]" if isinstance(step, int) else f".{step}"
        text = str(error)
        raise ValueError(place + text if text[:1] in ".[" else f"{place} {text}") from None


_WIDE = Context(prec=400)
