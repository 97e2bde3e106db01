"""Copies: every document once, whatever its id, and all that was there when the position was fixed."""

from __future__ import annotations

import contextlib
import threading

import pytest
from bson import Int64

from tailrace.adaptors.contract import Piece
from tailrace.errors import BadInput, NotThere
from tests.adaptors.mongodb.driver import Drive, assert_same
from tests.adaptors.mongodb.place import Place
from tests.adaptors.mongodb.values import IDS, LIKE_EXTENDED_JSON, NAMES, VALUES

pytestmark = pytest.mark.server


def copied(place: Place, collection: str, rows: int) -> tuple[Drive, list[Piece]]:
    """A collection, copied in pieces of about so many documents."""
    with Drive(place, [collection]) as drive:
        pieces = drive.reader.pieces(place.namespace(collection), rows)
        for piece in pieces:
            drive.copy_piece(piece)
    return drive, pieces


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_ids_of_all_types_in_one_collection(place: Place, rows: int) -> None:
    documents = [{"_id": value, "n": n} for n, value in enumerate(IDS)]
    documents += [{"_id": n, "n": n} for n in range(1000, 1050)] + [{"_id": f"id {n}", "n": n} for n in range(50)]
    place["ids"].insert_many(documents)
    drive, pieces = copied(place, "ids", rows)
    assert len(drive.messages) == len(documents)
    assert (len(pieces) > 1) == (rows < len(documents))
    assert_same(drive, place, "ids")


def test_every_type_comes_byte_by_byte(place: Place) -> None:
    place["types"].insert_many([{"_id": name, "value": value} for name, value in VALUES.items()])
    place["types"].insert_many([{"_id": n, "inner": value} for n, value in enumerate(LIKE_EXTENDED_JSON)])
    place["types"].insert_one({"_id": "all", **VALUES})
    place["types"].insert_one(NAMES)
    drive, _ = copied(place, "types", 10)
    assert_same(drive, place, "types")


def test_large_documents(place: Place) -> None:
    place["large"].insert_many([{"_id": n, "text": "x" * (15 * 1024 * 1024)} for n in range(3)])
    drive, _ = copied(place, "large", 1000)
    assert_same(drive, place, "large")


def test_batches_have_about_the_bytes_that_are_wanted(place: Place) -> None:
    place["c"].insert_many([{"_id": n, "text": "x" * 1000} for n in range(20)])
    with contextlib.closing(place.reader(batch_bytes=5000)) as reader:
        (piece,) = reader.pieces(place.namespace("c"), 1000)
        assert [batch.num_rows for batch in reader.copy(piece)] == [5, 5, 5, 5]


def test_a_collection_stored_by_its_id(place: Place) -> None:
    place.database.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    place["clustered"].insert_many([{"_id": n} for n in range(300)])
    drive, pieces = copied(place, "clustered", 20)
    assert len(pieces) > 3
    assert len(drive.messages) == 300
    assert_same(drive, place, "clustered")


def test_a_collection_with_a_collation(place: Place) -> None:
    place.database.create_collection("collated", collation={"locale": "de", "strength": 1})
    place["collated"].insert_many([{"_id": f"{letter}{n}"} for n in range(60) for letter in "aBcÖz"])
    drive, pieces = copied(place, "collated", 20)
    assert len(pieces) > 3
    assert len(drive.messages) == 300
    assert_same(drive, place, "collated")


def test_no_views_no_time_series_nothing_of_the_server(place: Place) -> None:
    place["plain"].insert_one({})
    place.database.create_collection("view", viewOn="plain", pipeline=[])
    place.database.create_collection("series", timeseries={"timeField": "at"})
    with contextlib.closing(place.reader()) as reader:
        assert [found.name for found in reader.namespaces()] == [place.namespace("plain")]
        with pytest.raises(NotThere, match="there is no collection"):
            reader.pieces(place.namespace("nowhere"), 10)


def test_all_databases_where_the_uri_names_none(place: Place) -> None:
    place["one"].insert_one({})
    with contextlib.closing(place.reader(uri=place.server.uri())) as reader:
        found = [namespace.name for namespace in reader.namespaces()]
    assert place.namespace("one") in found
    assert not [name for name in found if name.startswith(("admin.", "local.", "config."))]


def test_a_document_that_is_not_utf8_is_named(place: Place) -> None:
    raw = bytearray(bson_of("text"))
    raw[raw.index(b"text")] = 0xFF
    from bson.raw_bson import RawBSONDocument

    place["bad"].insert_one({"_id": 6, "s": "good"})
    place["bad"].insert_one(RawBSONDocument(bytes(raw)))
    with pytest.raises(BadInput, match="_id 7 cannot be decoded"):
        copied(place, "bad", 10)


def bson_of(text: str) -> bytes:
    import bson

    return bson.encode({"_id": 7, "s": text})


def test_a_copy_under_load_and_what_follows(place: Place) -> None:
    """Documents come, change and go all the while; in the end both are the same, byte by byte."""
    place["busy"].insert_many([{"_id": n, "n": Int64(0)} for n in range(2000)])
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            place["busy"].update_one({"_id": n * 7 % 2000}, {"$inc": {"n": 1}, "$unset": {"gone": 1}})
            place["busy"].replace_one({"_id": n * 11 % 2000}, {"gone": n, "s": [n]}, upsert=True)
            place["busy"].delete_one({"_id": n * 13 % 2000})
            place["busy"].insert_one({"_id": f"new {n}"})

    writing = threading.Thread(target=write)
    with Drive(place, ["busy"]) as drive:
        writing.start()
        try:
            drive.begin()
            drive.copy(rows=100)
            for _ in range(5):
                drive.step()
            drive.stop()
            drive.step()
        finally:
            stop.set()
            writing.join()
        drive.catch_up()
        assert_same(drive, place, "busy")
