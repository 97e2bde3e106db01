"""Models and their tables, and the streams of their changes: in memory, on disk and in DynamoDB."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import tailrace
from tailrace.errors import BadInput, BadItem, BadModel, Conflict, NotReady, UnknownTable
from tailrace.streams import (
    Absent,
    Add,
    Append,
    Engine,
    Equals,
    Include,
    Record,
    Set,
    Stream,
    hash_key,
    model,
    range_key,
)
from tailrace.streams.table_homes import OnDynamo
from tests.servers import aws
from tests.servers.process import Server


@dataclasses.dataclass
class Address:
    street: str
    number: int


@model(stream={"new", "old"})
class User:
    id: UUID = hash_key()
    email: str
    verified: bool = False
    visits: int = 0
    tags: set[str] = dataclasses.field(default_factory=set)
    notes: list[str] = dataclasses.field(default_factory=list)
    address: Address | None = None


@model(stream={"keys"})
class Reading:
    sensor: str = hash_key()
    at: Decimal = range_key()
    value: float


@model()
class Quiet:
    id: bytes = hash_key()


def suffixed(kind: Any, suffix: str) -> Any:
    """The same model in a table of its own, for servers that tests share."""
    kind.__tailrace_model__.table = f"{kind.__name__}-{suffix}"
    return kind


# moto's streams show an item that an update makes in two steps, first as its key alone, which DynamoDB does not.
@pytest.fixture(params=["memory", "disk", pytest.param("dynoxide", marks=pytest.mark.server)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    suffix = uuid4().hex[:12] if request.param == "dynoxide" else "own"
    for kind in (User, Reading, Quiet):
        suffixed(kind, suffix)
    if request.param in ("memory", "disk"):
        with tailrace.open("memory://" if request.param == "memory" else tmp_path / "home") as home:
            yield home.engine()
        return
    server: Server = request.getfixturevalue("dynoxide")
    with aws.table(server, "none") as beside:
        yield Engine(OnDynamo(beside))


def all_of(stream: Stream[Record[Any]], count: int, seconds: float = 30.0) -> list[Record[Any]]:
    found = []
    for record in stream.follow(seconds=seconds):
        found.append(record)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} records came")


def test_a_users_life(engine: Engine) -> None:
    engine.bind(User)
    stream = engine.stream(User, "trim_horizon")
    user = User(uuid4(), "ann@example.com", tags={"new"}, address=Address("Elm", 5))
    engine.save(user)
    assert engine.load(User, id=user.id) == user
    engine.save(changed := dataclasses.replace(user, verified=True, tags=set(), address=None))
    assert engine.load(User, id=user.id) == changed
    engine.delete(changed)
    assert engine.load(User, id=user.id) is None
    records = all_of(stream, 3)
    assert [(r.meta.event.type, r.old, r.new) for r in records] == [
        ("insert", None, user), ("modify", user, changed), ("remove", changed, None),
    ]  # fmt: skip
    first = records[0]
    assert first["key"] == first.key == {"id": user.id}
    assert first["meta"]["event"]["id"] == first.meta.event.id
    assert first["meta"]["event"]["version"]
    assert abs((datetime.now(UTC) - first["meta"]["created_at"]).total_seconds()) < 120
    assert next(stream) is None


def test_a_token_goes_on_in_another_process(engine: Engine) -> None:
    engine.bind(User)
    users = [User(uuid4(), f"{n}@example.com") for n in range(5)]
    stream = engine.stream(User, "trim_horizon")
    for user in users:
        engine.save(user)
    first = all_of(stream, 2)
    token = json.loads(json.dumps(stream.token))
    rest = all_of(engine.stream(User, token), 3)
    assert [record.new for record in first + rest] == users


def test_conditions_and_atomic_updates(engine: Engine) -> None:
    engine.bind(User)
    user = User(uuid4(), "ann@example.com")
    engine.save(user, when=[Absent()])
    with pytest.raises(Conflict):
        engine.save(user, when=[Absent()])
    with pytest.raises(Conflict):
        engine.save(user, when=[Equals("email", "bob@example.com")])
    engine.save(user, when=[Equals("email", "ann@example.com")])
    engine.update(User, Add("visits", 3), Append("notes", ["hi"]), Include("tags", frozenset({"x"})), id=user.id)
    engine.update(User, Set("address", Address("Oak", 1)), when=[Equals("visits", 3)], id=user.id)
    assert engine.load(User, id=user.id) == dataclasses.replace(
        user, visits=3, notes=["hi"], tags={"x"}, address=Address("Oak", 1)
    )
    with pytest.raises(Conflict):
        engine.update(User, Add("visits", 1), id=uuid4())
    engine.delete(User(uuid4(), "nobody"))
    with pytest.raises(BadModel, match="has no field 'visit'"):
        engine.update(User, Add("visit", 1), id=user.id)


def test_a_condition_on_what_an_item_leaves_out(engine: Engine) -> None:
    """None and the empty set are stored as no attribute, and a condition finds them there."""
    engine.bind(User)
    user = User(uuid4(), "ann@example.com")
    engine.save(user)
    left_out = [Equals("address", None), Equals("tags", set())]
    for condition in left_out:
        engine.update(User, Add("visits", 1), when=[condition], id=user.id)
    engine.save(dataclasses.replace(user, tags={"x"}, address=Address("Oak", 1)))
    for condition in left_out:
        with pytest.raises(Conflict):
            engine.update(User, Add("visits", 1), when=[condition], id=user.id)


def test_queries_and_scans_by_keys_of_other_kinds(engine: Engine) -> None:
    engine.bind(Reading)
    times = [Decimal(text) for text in ("-20", "-2.5", "0", "0.1", "0.11", "1", "9.5", "10", "1e10")]
    for at in reversed(times):
        engine.save(Reading("a", at, float(at)), Reading("b", at, 0.5))
    assert [r.at for r in engine.query(Reading, "a")] == times
    assert [r.at for r in engine.query(Reading, "a", descending=True, limit=3)] == times[::-1][:3]
    assert [r.at for r in engine.query(Reading, "a", at_least=Decimal("0.1"), at_most=Decimal("1"))] == times[3:6]
    assert [r.at for r in engine.query(Reading, "a", above=Decimal("0.1"))] == times[4:]
    assert [r.at for r in engine.query(Reading, "a", below=Decimal("0.1"))] == times[:3]
    assert list(engine.query(Reading, "c")) == []
    assert len(list(engine.scan(Reading))) == 18
    with pytest.raises(BadInput):
        list(engine.query(Reading, "a", prefix="1"))
    stream = engine.stream(Reading, "trim_horizon")
    records = all_of(stream, 18)
    assert {(r.key["sensor"], r.key["at"]) for r in records} == {(s, at) for s in "ab" for at in times}
    assert all(record.new is None and record.old is None for record in records)


@model()
class Visit:
    kind: str = hash_key()
    self: int = range_key()
    n: int = 0


@model()
class Meeting:
    when: int = hash_key()
    n: int = 0


def test_keys_may_have_the_names_of_parameters(engine: Engine) -> None:
    engine.bind(Visit, Meeting)
    engine.save(Visit("cat", 1), Visit("dog", 2), Meeting(5))
    engine.update(Visit, Add("n", 2), kind="cat", self=1)
    with engine.transaction() as t:
        t.check(Visit, Equals("n", 2), kind="cat", self=1)
        t.check(Meeting, Equals("n", 0), when=5)
        t.update(Visit, Add("n", 1), kind="dog", self=2)
    assert sorted(visit.n for visit in engine.scan(Visit)) == [1, 2]
    assert engine.load(Visit, kind="dog", self=2) == Visit("dog", 2, 1)
    assert engine.load(Meeting, when=5) == Meeting(5)
    with pytest.raises(BadModel, match="save it with conditions"):
        engine.update(Meeting, Add("n", 1), when=5)  # type: ignore[arg-type]


def test_several_models_in_one_transaction(engine: Engine) -> None:
    engine.bind(User, Reading, Quiet)
    user = User(uuid4(), "ann@example.com")
    with engine.transaction() as t:
        t.save(user, Reading("t", Decimal(1), 2.0))
        t.save(Quiet(b"q"), when=[Absent()])
    with pytest.raises(Conflict), engine.transaction() as t:
        t.update(User, Add("visits", 1), id=user.id)
        t.save(Quiet(b"q"), when=[Absent()])
    with pytest.raises(ZeroDivisionError), engine.transaction() as t:
        t.delete(user)
        raise ZeroDivisionError
    with engine.transaction() as t:
        t.check(Quiet, Absent(), id=b"other")
        t.update(User, Add("visits", 5), id=user.id)
        t.delete(Reading("t", Decimal(1), 0.0))
    assert (engine.load(User, id=user.id) or user).visits == 5
    assert engine.load(Reading, sensor="t", at=Decimal(1)) is None
    assert engine.load(Quiet, id=b"q") == Quiet(b"q")


def test_a_model_that_differs_from_its_table_is_refused(engine: Engine) -> None:
    engine.bind(User)
    engine.bind(User)
    name = User.__tailrace_model__.table  # type: ignore[attr-defined]

    @model(table=name, stream={"new"})
    class OtherStream:
        id: UUID = hash_key()

    @model(table=name, stream={"new", "old"})
    class OtherKey:
        id: int = hash_key()
        at: int = range_key()

    with pytest.raises(BadModel, match="its stream is both, the model has new"):
        engine.bind(OtherStream)
    with pytest.raises(BadModel, match=r"hash key is 'id' \(S\), the model has 'id' \(N\); its range key is none"):
        engine.bind(OtherKey)
    assert name in engine.tables()


def test_a_table_without_a_model_gives_dicts(engine: Engine) -> None:
    engine.bind(User, Quiet)
    user = User(uuid4(), "ann@example.com")
    engine.save(user)
    name = User.__tailrace_model__.table  # type: ignore[attr-defined]
    (record,) = all_of(engine.stream(name, "trim_horizon"), 1)
    assert record.key == {"id": str(user.id)}
    assert record["new"]["email"] == "ann@example.com"
    with pytest.raises(NotReady, match="has no change stream"):
        engine.stream(Quiet, "latest")
    with pytest.raises(UnknownTable):
        engine.stream("nothing-of-this-name", "latest")


def test_an_item_that_does_not_fit_stops_the_stream_or_is_skipped(engine: Engine) -> None:
    engine.bind(User)
    name = User.__tailrace_model__.table  # type: ignore[attr-defined]
    users = [User(uuid4(), f"{n}@example.com") for n in range(3)]
    for user in users:
        engine.save(user)

    @model(table=name, stream={"new", "old"})
    class Strict:
        id: UUID = hash_key()
        email: str
        age: int

    @model(table=name, stream={"new", "old"})
    class Loose:
        id: UUID = hash_key()
        email: str

    engine.bind(Strict)
    stream = engine.stream(Strict, "trim_horizon")
    with pytest.raises(BadItem, match=r"Strict\.age is not there"):
        all_of(stream, 1)
    engine.bind(Loose)
    assert len(all_of(engine.stream(Loose, stream.token), 3)) == 3
    skipping = engine.stream(Strict, "trim_horizon", bad_items="skip")
    end = time.monotonic() + 30
    while skipping.skipped < 3 and time.monotonic() < end:
        assert next(skipping) is None
    assert skipping.skipped == 3


async def _first(stream: Stream[Record[Any]]) -> Record[Any]:
    async for record in stream.follow(seconds=30):
        return record
    raise AssertionError("nothing came")


def test_async(engine: Engine) -> None:
    import asyncio

    engine.bind(User)
    user = User(uuid4(), "ann@example.com")
    engine.save(user)
    assert asyncio.run(_first(engine.stream(User, "trim_horizon"))).new == user


def test_a_model_that_is_not_bound_is_said_so(engine: Engine) -> None:
    with pytest.raises(BadModel, match=r"engine\.bind\(User\)"):
        engine.save(User(uuid4(), "a"))
    with pytest.raises(BadModel, match="is not a model"):
        engine.save(5)


@pytest.mark.parametrize("target", ["disk", "memory"])
def test_a_copy_of_a_home_has_the_tables_of_its_models(tmp_path: Path, target: str) -> None:
    for kind in (User, Reading, Quiet):
        suffixed(kind, "own")
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(User, Reading)
        users = [User(uuid4(), f"{n}@example.com", tags={"x"}) for n in range(120)]
        for user in users:
            engine.save(user)
        engine.save(Reading("a", Decimal("1.50"), 2.5))
        url = str(tmp_path / "copy") if target == "disk" else f"memory://{uuid4()}"
        assert home.copy(url).tables == 2
    with tailrace.open(url) as copied:
        engine = copied.engine()
        engine.bind(User, Reading)
        assert sorted(engine.scan(User), key=lambda user: user.id) == sorted(users, key=lambda user: user.id)
        assert list(engine.scan(Reading)) == [Reading("a", Decimal("1.50"), 2.5)]
        assert engine.tables() == ["Reading-own", "User-own"]


def test_a_home_with_models_closes_its_files(tmp_path: Path) -> None:
    for _ in range(3):
        with tailrace.open(tmp_path / "home") as home:
            home.engine().bind(suffixed(User, "own"))
    open_now = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)]
    assert not [path for path in open_now if str(tmp_path) in path]


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")
