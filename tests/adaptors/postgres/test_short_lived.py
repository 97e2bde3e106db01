"""Tables that live for a moment: a table that is gone when it is looked at is a dropped table, and ends nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.source import publication
from tailrace.errors import NotThere
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server


@contextmanager
def dropped_after(monkeypatch: pytest.MonkeyPatch, place: Place, module: Any, name: str) -> Iterator[None]:
    """A table `brief` is there until a function of ours has spoken of it once, and from then on it is gone."""
    place.run("CREATE TABLE brief (id int PRIMARY KEY); INSERT INTO brief VALUES (1)")
    function = getattr(module, name)

    def called(*given: Any, **named: Any) -> Any:
        answer = function(*given, **named)
        if "brief" not in repr((given, named, answer)):
            return answer
        with psycopg.connect(place.uri, autocommit=True) as other:
            other.execute("DROP TABLE IF EXISTS brief")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(module, name, called)
        yield


STEPS = [(catalog, "identities"), (publication, "lacks"), (publication, "check_identities"), (catalog, "tables")]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
def test_at_the_start(source18: Place, sink18: Place, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    source18.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    with dropped_after(monkeypatch, source18, *step), Drive(source18, sink18, []) as drive:
        drive.namespaces = [namespace.name for namespace in source18.reader().namespaces()]
        source18.reader().check_namespaces(drive.namespaces)
        drive.begin()
        drive.copy()
        source18.run("INSERT INTO t VALUES (3)")
        drive.follow()
    assert sink18.texts("t") == source18.texts("t")


@pytest.mark.parametrize("step", STEPS[:-1], ids=lambda step: step[1])
def test_while_it_is_followed_and_it_may_come_back(
    source18: Place, sink18: Place, monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    source18.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        with dropped_after(monkeypatch, source18, *step):
            until(drive, lambda: "public.brief" in drive.appeared)
            drive.follow()
        source18.run("INSERT INTO t VALUES (3)")
        source18.run("CREATE TABLE brief (id int PRIMARY KEY, v text); INSERT INTO brief VALUES (7, 'another')")
        until(drive, lambda: sink18.ask("SELECT to_regclass('brief')") != [(None,)])
        source18.run("INSERT INTO brief VALUES (8, 'more')")
        drive.follow()
    assert sink18.texts("t") == source18.texts("t")
    assert set(sink18.texts("brief", "id, v")) >= set(source18.texts("brief"))


def until(drive: Drive, done: Any) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it did not come to that"
        drive.step()


def test_planned_and_gone_before_it_is_copied(source18: Place) -> None:
    source18.run("CREATE TABLE brief (id int PRIMARY KEY); INSERT INTO brief VALUES (1)")
    reader = source18.reader()
    (piece,) = reader.pieces("public.brief", 10)
    source18.run("DROP TABLE brief")
    assert list(reader.copy(piece)) == []
    with pytest.raises(NotThere, match=r"has no table public\.brief"):
        reader.pieces("public.brief", 10)
    assert list(reader.copy(Piece("public.brief", {"parts": [[1, 0, None]]}))) == []


def test_a_publication_takes_those_that_are_there(source18: Place) -> None:
    for name in ("a", "b", "c", "d", "e"):
        source18.run(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    names = [f"public.{name}" for name in "abcde"]
    for made in (False, True):
        known = catalog.identities(source18.connection, names)
        with closing(source18.reader()) as reader:
            source18.run("DROP TABLE b" if not made else "DROP TABLE d")
            publication.publish(source18.connection, reader._settings, known)
    found = publication.published_each(source18.connection, source18.name, names)
    assert found == {f"public.{name}": (["id"], None) for name in "ace"}


def test_many_that_come_and_go(source18: Place, sink18: Place) -> None:
    """Two threads make and drop tables all the time, before the start, and while all is followed."""
    source18.run("CREATE TABLE t (id int PRIMARY KEY)")
    stop, errors = threading.Event(), list[BaseException]()

    def churn(number: int) -> None:
        try:
            with psycopg.connect(source18.uri, autocommit=True) as connection:
                n = 0
                while not stop.wait(0.005):
                    name, n = f"c{number}_{n % 7}", n + 1
                    connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
                    connection.execute(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')")
                    connection.execute(f"DROP TABLE {name}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        with Drive(source18, sink18, [], reader={"discover": 0.1}) as drive:
            for _ in range(5):
                drive.namespaces = [namespace.name for namespace in source18.reader().namespaces()]
                drive.begin()
            drive.copy()
            for n in range(40):
                source18.run("INSERT INTO t VALUES (%s)", n)
                drive.step()
            stop.set()
            for thread in threads:
                thread.join()
            drive.follow()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert sink18.texts("t") == source18.texts("t")
