"""Following: what happens to documents, to collections and to databases, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.log.record import Op
from tests.adaptors.mongodb.driver import Drive, assert_same
from tests.adaptors.mongodb.place import Place

pytestmark = pytest.mark.server


@pytest.fixture
def drive(place: Place) -> Iterator[Drive]:
    """A pipeline that has copied the collection `a`, of three documents, and follows it."""
    place["a"].insert_many([{"_id": n, "n": n} for n in range(3)])
    with Drive(place, ["a"]) as drive:
        drive.begin()
        drive.copy()
        drive.catch_up()
        drive.messages.clear()
        yield drive


def test_a_delete_says_what_was_deleted_where_images_are_kept(place: Place) -> None:
    place.keep_images("kept")
    place["kept"].insert_one({"_id": 1, "n": 1})
    with Drive(place, ["kept"]) as drive:
        drive.begin()
        place["kept"].delete_one({"_id": 1})
        drive.until(lambda: any(m.op == Op.DELETE for m in drive.messages))
        assert drive.messages[-1].data == {"_id": "1", "document": '{"_id":1,"n":1}'}


def test_a_delete_says_the_id_where_they_are_not(place: Place, drive: Drive) -> None:
    place["a"].delete_one({"_id": 1})
    drive.until(lambda: bool(drive.messages))
    assert (drive.messages[0].op, drive.messages[0].data) == (Op.DELETE, {"_id": "1"})


def test_batches_have_about_the_bytes_that_are_wanted(place: Place) -> None:
    place["a"].insert_one({"_id": 0})
    with Drive(place, ["a"], batch_bytes=5000) as drive:
        drive.begin()
        drive.copy()
        place["a"].insert_many([{"_id": n, "text": "x" * 1000} for n in range(1, 21)])
        counts = []
        while sum(counts) < 20:
            counts += [batch.num_rows for batch in drive.step().rows]
            drive.stop()  # every position is one to go on from
        assert max(counts) <= 5
        assert_same(drive, place, "a")


def test_many_deletes(place: Place, drive: Drive) -> None:
    place["a"].delete_many({})
    drive.catch_up()
    assert drive.documents("a") == []


def test_an_update_of_a_document_that_is_gone_by_now(place: Place, drive: Drive) -> None:
    place["a"].update_one({"_id": 1}, {"$set": {"n": 9}})
    place["a"].delete_one({"_id": 1})
    drive.catch_up()
    assert_same(drive, place, "a")


def test_changes_of_a_transaction_are_numbered(place: Place, drive: Drive) -> None:
    with place.client.start_session() as session, session.start_transaction():
        for n in range(10, 15):
            place["a"].insert_one({"_id": n}, session=session)
    place["a"].insert_one({"_id": 20})
    drive.until(lambda: len(drive.messages) == 6)
    order = [(m.place.transaction, m.place.position) for m in drive.messages]
    assert order == sorted(order)
    assert [position for _, position in order] == [0, 1, 2, 3, 4, 0]
    assert len({transaction for transaction, _ in order}) == 2


def test_a_collection_that_appears(place: Place, drive: Drive) -> None:
    place["b"].insert_many([{"_id": n} for n in range(5)])
    drive.catch_up()
    assert ("appeared", [place.namespace("b")]) in drive.said
    assert_same(drive, place, "b")


def test_a_collection_that_is_not_wanted_is_told_once(place: Place) -> None:
    with Drive(place, ["a"], wanted=lambda name: False) as drive:
        drive.begin()
        for n in range(3):
            place["b"].insert_one({"_id": n})
            drive.step()
        drive.until(lambda: drive.step().caught_up)
        assert drive.said == [("appeared", [place.namespace("b")])]
        assert drive.messages == []


def test_a_collection_that_is_dropped(place: Place, drive: Drive) -> None:
    place["a"].insert_one({"_id": 9})
    place["a"].drop()
    drive.until(lambda: ("ended", [place.namespace("a")]) in drive.said)
    assert drive.documents("a") == []


def test_a_collection_that_is_dropped_and_made_again(place: Place, drive: Drive) -> None:
    place["a"].drop()
    place["a"].insert_one({"_id": "new"})
    drive.catch_up()
    assert_same(drive, place, "a")


def test_a_collection_that_lived_for_a_moment(place: Place, drive: Drive) -> None:
    for _ in range(3):
        place["moment"].insert_one({"_id": 1})
        place["moment"].drop()
    drive.catch_up()
    place["moment"].insert_one({"_id": 2})
    drive.catch_up()
    assert_same(drive, place, "moment")


def test_a_collection_that_is_renamed(place: Place, drive: Drive) -> None:
    place["a"].update_one({"_id": 1}, {"$set": {"n": 7}})
    place["a"].rename("b")
    place["b"].insert_one({"_id": 10})
    drive.catch_up()
    assert drive.documents("a") == []
    assert_same(drive, place, "b")


def test_a_collection_that_takes_the_place_of_another(place: Place, drive: Drive) -> None:
    place["other"].insert_many([{"_id": "x"}, {"_id": 1, "other": True}])
    place["other"].rename("a", dropTarget=True)
    drive.catch_up()
    assert_same(drive, place, "a")


def test_collections_that_change_names(place: Place, drive: Drive) -> None:
    place["b"].insert_one({"_id": "b"})
    drive.catch_up()
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        place[old].rename(new)
    drive.catch_up()
    assert_same(drive, place, "a")
    assert_same(drive, place, "b")


def test_a_collection_written_by_out(place: Place, drive: Drive) -> None:
    """`$out` fills a collection of its own, and then gives it the name."""
    place["from"].insert_many([{"_id": n} for n in range(5)])
    place["from"].aggregate([{"$out": "a"}])
    drive.catch_up()
    assert_same(drive, place, "a")
    assert not [names for _, names in drive.said if any(".tmp" in name for name in names)]


@pytest.mark.parametrize("whole", [False, True], ids=["one database", "all databases"])
def test_a_database_that_is_dropped_and_comes_back(place: Place, whole: bool) -> None:
    """The stream of a database ends with it, and goes on after it."""
    settings: dict[str, Any] = {"uri": place.server.uri()} if whole else {}
    place["a"].insert_one({"_id": 1})
    with Drive(place, ["a"], **settings) as drive:
        drive.begin()
        drive.copy()
        place.client.drop_database(place.name)
        drive.until(lambda: ("ended", [place.namespace("a")]) in drive.said)
        assert drive.documents("a") == []
        place["a"].insert_one({"_id": 2})
        place["b"].insert_one({"_id": 3})
        drive.until(lambda: bool(drive.documents("a") and drive.documents("b")))
        drive.catch_up()
        for name in "ab":
            assert_same(drive, place, name)


def test_several_databases(place: Place, sink_place: Place) -> None:
    with Drive(
        place, [], wanted=lambda name: name.startswith((place.name, sink_place.name)), uri=place.server.uri()
    ) as drive:
        drive.begin()
        place["a"].insert_one({"_id": 1})
        sink_place["a"].insert_one({"_id": 2})
        drive.catch_up()
        assert {name for name, held in drive.held.items() if held} == {place.namespace("a"), sink_place.namespace("a")}


def test_columns_of_a_batch(place: Place) -> None:
    place["c"].insert_many([{"_id": 1, "a": 1}])
    with Drive(place, ["c"], shape="columns") as drive:
        drive.begin()
        place["c"].replace_one({"_id": 1}, {"b": "x", "d": 2.5})
        place["c"].insert_one({"_id": 2, "d": 1})
        place["c"].delete_one({"_id": 2})
        drive.until(lambda: any(m.op == Op.DELETE for m in drive.messages))
    assert {"_id": "1", "b": "x", "d": 2.5} in [
        {k: v for k, v in m.data.items() if v is not None} for m in drive.messages
    ]
    assert drive.messages[-1].data == {"_id": "2"}
