"""Ids as text: different for different ids, equal for equal ones, and back."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from tailrace.adaptors.mongodb.extended_json import DECODED
from tailrace.adaptors.mongodb.id_text import id_of, id_text
from tests.adaptors.mongodb.place import Place
from tests.adaptors.mongodb.values import EQUAL_IDS, IDS


def decoded(value: Any) -> Any:
    return bson.decode(bson.encode({"_id": value}), DECODED)["_id"]


def test_no_two_ids_have_one_text() -> None:
    texts = [id_text(decoded(value)) for value in IDS]
    assert len(set(texts)) == len(IDS)


@pytest.mark.parametrize("same", EQUAL_IDS, ids=repr)
def test_equal_ids_have_one_text(same: list[Any]) -> None:
    assert len({id_text(decoded(value)) for value in same}) == 1


def test_the_usual_ids_are_plain() -> None:
    oid = bson.ObjectId("5f8f8c44b54764421b7156c9")
    assert [id_text(value) for value in (oid, 7, "order-7", "ünï")] == [str(oid), "7", "order-7", "ünï"]
    assert [id_text(value) for value in ("7", str(oid), "true")] == ['"7"', f'"{oid}"', '"true"']


@pytest.mark.server
def test_a_text_finds_its_document(place: Place) -> None:
    """Of many ids, and of those that are equal to the one that is stored."""
    place["ids"].insert_many([{"_id": value} for value in IDS])
    ids = place.database.get_collection("ids", codec_options=DECODED)
    for value in IDS:
        found = list(ids.find({"_id": {"$eq": id_of(id_text(decoded(value)))}}, projection={"_id": 1}))
        assert len(found) == 1
        assert bson.encode(found[0]) == bson.encode({"_id": value})
    for n, same in enumerate(EQUAL_IDS):
        for value in same:
            collection = place[f"equal{n}"]
            collection.insert_one({"_id": value})
            for other in same:
                assert collection.count_documents({"_id": {"$eq": id_of(id_text(decoded(other)))}}) == 1
            collection.delete_many({})
