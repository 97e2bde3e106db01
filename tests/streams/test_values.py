"""Python types in a table, and back; what a table cannot hold is refused before it is sent."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tailrace.errors import BadItem, BadModel
from tailrace.storage.limits import check_values
from tailrace.streams.model import Model, hash_key, model, model_of, range_key
from tailrace.streams.values import MISSING, store_as, stored


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Address:
    street: str
    number: int | None = None
    tags: set[str] = dataclasses.field(default_factory=set)


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


store_as(Money, int, lambda money: money.cents, Money)

BERLIN = timezone(timedelta(hours=2))
GOOD: list[tuple[Any, Any, Any]] = [
    (str, "ä", "ä"),
    (str, "", ""),
    (int, 10**37, 10**37),
    (int, -7, -7),
    (Decimal, Decimal("1.50"), Decimal("1.50")),
    (float, 0.1, Decimal("0.1")),
    (float, 1e100, Decimal("1e100")),
    (bool, True, True),
    (bytes, b"\0\xff", b"\0\xff"),
    (datetime, datetime(2026, 1, 31, 14, 0, tzinfo=BERLIN), "2026-01-31T12:00:00.000000+00:00"),
    (date, date(2026, 1, 31), "2026-01-31"),
    (UUID, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (list[int], [1, 2], [1, 2]),
    (list, [1, "a", None, {"b": [b"c"]}], [1, "a", None, {"b": [b"c"]}]),
    (dict[str, float], {"a": 1.5}, {"a": Decimal("1.5")}),
    (dict, {"a": {1, 2}}, {"a": frozenset({1, 2})}),
    (set[str], {"a", "b"}, frozenset({"a", "b"})),
    (frozenset[UUID], frozenset({UUID(int=5)}), frozenset({str(UUID(int=5))})),
    (set[int], set(), MISSING),
    (int | None, None, None),
    (int | None, 5, 5),
    (Colour, Colour.RED, "red"),
    (Level, Level.LOW, 1),
    (Address, Address("Elm", 5, {"x"}), {"street": "Elm", "number": 5, "tags": frozenset({"x"})}),
    (Address, Address("Elm"), {"street": "Elm", "number": None}),
    (list[Address], [Address("Elm", 5)], [{"street": "Elm", "number": 5}]),
    (Money, Money(150), 150),
    (dict[str, Money | None], {"a": Money(1), "b": None}, {"a": 1, "b": None}),
]


@pytest.mark.parametrize(("kind", "value", "in_table"), GOOD, ids=range(len(GOOD)))
def test_there_and_back(kind: Any, value: Any, in_table: Any) -> None:
    how = stored(kind)
    dumped = how.dump(value)
    assert dumped == in_table
    assert type(dumped) is type(in_table)
    if dumped is not MISSING:
        check_values(dumped)
        back = how.load(dumped)
        assert back == value
        assert type(back) is type(value)


def nested(levels: int) -> list[Any]:
    """A list in a list in a list…"""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (int, True, "must be an int"),
        (int, "5", "must be an int"),
        (int, 10**38 + 1, "39 digits"),
        (Decimal, Decimal("NaN"), "finite"),
        (Decimal, Decimal(1).scaleb(126), "1E126"),
        (Decimal, Decimal("1." + "1" * 38), "39 digits"),
        (float, float("inf"), "finite"),
        (float, 1e-200, "1E-130"),
        (str, b"a", "must be a str"),
        (str, "ab\ud800", "half of a surrogate pair at position 2"),
        (dict, {"a": ["\udfff"]}, "half of a surrogate pair"),
        (list, nested(3_000), "more than 32 levels"),
        (dict[str, int], {"\ud800": 1}, "half of a surrogate pair"),
        (bytes, "a", "must be a bytes"),
        (datetime, datetime(2026, 1, 1), "no time zone"),
        (date, datetime(2026, 1, 1, tzinfo=UTC), "must be a date"),
        (list[int], [1, "b"], r"\[1\] must be an int"),
        (dict[str, int], {1: 1}, "must be a str"),
        (set[str], ["a"], "must be a set"),
        (dict, {"a": {"b": [object()]}}, "object"),
        (dict, {"a": set()}, "not empty"),
        (list, [{1, "a"}], "of texts, of numbers or of bytes"),
        (Colour, "red", "must be a Colour"),
        (Address, Address("Elm", "5"), r"\.number must be an int"),  # type: ignore[arg-type]
        (list[Address], [Address(5)], r"\[0\]\.street must be a str"),  # type: ignore[arg-type]
        (Money, 150, "must be a Money"),
    ],
)
def test_what_a_table_cannot_hold_is_refused_with_its_place(kind: Any, value: Any, why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        stored(kind).dump(value)


@pytest.mark.parametrize("kind", [object, complex, int | str, dict[int, str], set[list[int]], timedelta, set[bool]])
def test_types_that_no_table_holds(kind: Any) -> None:
    with pytest.raises(BadModel):
        stored(kind)


@model(table="users", stream={"new", "old"})
class User:
    id: UUID = hash_key()
    at: int = range_key()
    email: str
    verified: bool = False
    nick: str | None = None
    tags: set[str] = dataclasses.field(default_factory=set)


def test_an_instance_is_an_item_and_back() -> None:
    users: Model[User] = model_of(User)
    assert (users.table, users.view) == ("users", "both")
    user = User(UUID(int=1), 7, "a@b")
    item = users.dump(user)
    assert item == {
        "id": str(UUID(int=1)), "at": 7, "email": "a@b", "verified": False, "nick": MISSING, "tags": MISSING,
    }  # fmt: skip
    kept = {name: value for name, value in item.items() if value is not MISSING}
    assert users.load(kept) == user
    assert users.load(kept | {"unknown": 1}) == user
    assert users.load_key(kept) == {"id": UUID(int=1), "at": 7}
    assert users.dump_key({"id": UUID(int=1), "at": 7}) == {"id": str(UUID(int=1)), "at": 7}


@pytest.mark.parametrize(
    ("damage", "why"),
    [({"email": MISSING}, r"User\.email is not there"), ({"verified": "yes"}, r"User\.verified must be a bool")],
)
def test_an_item_that_does_not_fit_is_named(damage: dict[str, Any], why: str) -> None:
    item = model_of(User).dump(User(UUID(int=1), 7, "a@b")) | damage
    with pytest.raises(BadItem, match=why) as caught:
        model_of(User).load({name: value for name, value in item.items() if value is not MISSING})
    assert caught.value.table == "users"
    assert caught.value.key == {"id": str(UUID(int=1)), "at": 7}


def test_models_that_cannot_be() -> None:
    with pytest.raises(BadModel, match="no hash key"):

        @model()
        class NoKey:
            id: int

    with pytest.raises(BadModel, match="2 hash keys: id, other"):

        @model()
        class TwoKeys:
            id: int = hash_key()
            other: int = hash_key()

    with pytest.raises(BadModel, match=r"Odd\.what: a table cannot hold a object"):

        @model()
        class Odd:
            what: object
            id: int = hash_key()

    with pytest.raises(BadModel, match="cannot be a key"):

        @model()
        class BadKey:
            id: int | None = hash_key()

    with pytest.raises(BadModel, match="a stream carries"):

        @model(stream={"all"})
        class BadStream:
            id: int = hash_key()

    with pytest.raises(BadModel, match="cannot be understood: name 'Nothing' is not defined"):

        @model()
        class Unknown:
            what: Nothing  # type: ignore[name-defined]  # noqa: F821
            id: int = hash_key()

    with pytest.raises(BadModel, match="is not a model"):
        model_of(int)


def test_a_model_may_use_types_of_the_function_it_is_defined_in() -> None:
    class Local(enum.Enum):
        A = "a"

    @model()
    class Here:
        what: Local
        id: int = hash_key()

    assert model_of(Here).load({"what": "a", "id": 1}) == Here(Local.A, 1)
