"""Changes over 16 MB: a document before and after, together more than the server sends at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.adaptors.mongodb.source.change_stream import splits
from tests.adaptors.mongodb.conftest import fresh
from tests.adaptors.mongodb.driver import Drive, assert_same
from tests.adaptors.mongodb.place import Place
from tests.servers.mongodb import Mongo

pytestmark = pytest.mark.server
LARGE = 10 * 1024 * 1024


@pytest.fixture
def newer_place(newer_mongo: Mongo) -> Iterator[Place]:
    """An empty database of a server that splits such changes."""
    yield from fresh(newer_mongo, "source")


def changed(place: Place) -> None:
    """Follow changes of which each has two large documents, among small ones."""
    place.keep_images("large")
    place["large"].insert_many([{"_id": 1, "text": "a" * LARGE}, {"_id": 2}])
    with Drive(place, ["large"]) as drive:
        drive.begin()
        drive.copy()
        place["large"].update_one({"_id": 1}, {"$set": {"text": "b" * LARGE}})
        place["large"].update_one({"_id": 2}, {"$set": {"n": 1}})
        place["large"].replace_one({"_id": 1}, {"text": "c" * LARGE})
        place["large"].delete_one({"_id": 2})
        drive.until(lambda: any(m.op == 2 for m in drive.messages))
        assert_same(drive, place, "large")
        place["large"].delete_one({"_id": 1})
        drive.catch_up()
        assert drive.documents("large") == []


def test_they_are_split_and_joined(newer_place: Place) -> None:
    changed(newer_place)


def test_an_older_server_sends_them_without_what_was_before(place: Place) -> None:
    changed(place)


def test_a_reader_that_begins_again_after_each_change(newer_place: Place) -> None:
    """A position is never between two fragments of one change."""
    newer_place.keep_images("large")
    newer_place["large"].insert_one({"_id": 1, "text": "a" * LARGE})
    with Drive(newer_place, ["large"], batch_rows=1) as drive:
        drive.begin()
        drive.copy()
        for letter in "bc":
            newer_place["large"].update_one({"_id": 1}, {"$set": {"text": letter * LARGE}})
        newer_place["large"].insert_one({"_id": 2})
        while len(drive.documents("large")) < 2:
            if drive.step().rows:
                drive.stop()
        assert_same(drive, newer_place, "large")


@pytest.mark.parametrize(
    ("version", "does"),
    [
        ((5, 0, 30), False),
        ((6, 0, 5), False),
        ((6, 0, 9), True),
        ((6, 3, 1), False),
        ((7, 0, 0), True),
        ((8, 2, 1), True),
    ],
)
def test_which_versions_split(version: tuple[int, ...], does: bool) -> None:
    assert splits(version) == does
