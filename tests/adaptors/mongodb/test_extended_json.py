"""Values as text and back: the same bytes."""

from __future__ import annotations

import json
from typing import Any

import bson
import pytest
from bson import json_util

from tailrace.adaptors.mongodb.extended_json import DECODED, from_text, to_text
from tailrace.errors import BadInput
from tests.adaptors.mongodb.values import LIKE_EXTENDED_JSON, NAMES, VALUES


def stored(value: Any) -> tuple[bytes, Any]:
    """A value in BSON, and as a reader decodes it."""
    raw = bson.encode({"v": value})
    return raw, bson.decode(raw, DECODED)["v"]


@pytest.mark.parametrize("name", VALUES)
def test_every_type_comes_back(name: str) -> None:
    raw, value = stored(VALUES[name])
    assert bson.encode({"v": from_text(to_text(value))}) == raw


@pytest.mark.parametrize("name", VALUES)
def test_others_read_it_too(name: str) -> None:
    """The driver's own reader of Extended JSON gives the same."""
    raw, value = stored(VALUES[name])
    options = json_util.JSONOptions(datetime_conversion=DECODED.datetime_conversion, tz_aware=False)
    assert bson.encode({"v": json_util.loads(to_text(value), json_options=options)}) == raw


@pytest.mark.parametrize("document", LIKE_EXTENDED_JSON)
def test_a_document_that_looks_like_extended_json(document: Any) -> None:
    raw, value = stored({"inner": document})
    assert bson.encode({"v": from_text(to_text(value))}) == raw


def test_awkward_names_and_the_order_of_fields() -> None:
    raw, value = stored(NAMES)
    text = to_text(value)
    assert bson.encode({"v": from_text(text)}) == raw
    assert list(json.loads(text)) == list(NAMES)


def test_numbers_are_numbers() -> None:
    _, value = stored({"a": 1, "b": 1.0, "c": bson.Int64(2**40)})
    assert to_text(value) == '{"a":1,"b":1.0,"c":1099511627776}'


@pytest.mark.parametrize("text", ["{", '{"$oid": "5"}', '{"$date": "yesterday"}', '{"$binary": 5}', "1" * 30])
def test_what_is_not_extended_json(text: str) -> None:
    with pytest.raises(BadInput):
        from_text(text)
