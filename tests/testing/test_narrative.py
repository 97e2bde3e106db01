"""A schedule can be read: who did what to what, under which condition, and what came of it."""

from __future__ import annotations

from tailrace.errors import Conflict
from tailrace.storage.calls import DeleteObjects, Get, GetObject, ListObjects, Now, Pause, PutObject, Query, Write
from tailrace.storage.tables import LAST, Absent, Equals, Key, Put, Set, Update
from tailrace.testing.narrative import said, told

HEAD = Key("$Log-1", LAST)


def test_calls_in_words():
    assert said(Get(HEAD)) == "get $Log-1/last"
    assert said(Query("$Log-1", 0, 7, True, 1)) == "query $Log-1/0…7 descending limit 1"
    assert said(Query("$Log-1")) == "query $Log-1/0…last"
    assert said(PutObject("0/a", [b""])) == "put object 0/a"
    assert said(GetObject("0/a")) == "get object 0/a"
    assert said(ListObjects("0/")) == "list objects 0/"
    assert said(DeleteObjects(("0/a", "0/b"))) == "delete objects 0/a, 0/b"
    assert said(Pause(3)) == "pause 3"
    assert said(Now()) == "now"


def test_writes_in_words():
    write = Write((Put(Key("p", 1), {"a": 1}, (Absent(),)), Update(HEAD, (Set("k", 0),), (Equals("page", 2),))))
    words = said(write)
    assert words.startswith("put p/1 {'a': 1} if Absent")
    assert " + update $Log-1/last Set(path='k', value=0) if Equals(path='page', value=2)" in words


def test_moves_in_words():
    get = Get(HEAD)
    assert told(("step", "a"), get, {"k": 1}) == "    a: get $Log-1/last → {'k': 1}"
    assert "Conflict: no" in told(("step", "a"), get, Conflict("no"))
    assert "no answer, but it happened" in told(("landed", "a"), Pause(0), None)
    assert "dies" in told(("crash", "a"), get, None)
    assert "is started again, and lives on" in told(("zombie", "a"), get, None)
    assert "sent by a, lands" in told(("lands", ("a", 1)), Write(()), None)
    assert told(("shows", HEAD), None, None).strip() == "$Log-1/last shows its new state"
