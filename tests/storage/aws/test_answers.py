"""What is no whole answer of DynamoDB."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tailrace.storage.aws.answers import NotWhole, check_whole


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no body"),
        (b"<html>", "not JSON"),
        (b'{"Records": [{"a": "b', "not JSON"),
        (b'{"Records": [], "a": "\xff"}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"message": "no"}', "complaint"),
        (b"{}", "no 'Records'"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(NotWhole, match=why):
        check_whole({"status_code": 200, "body": body, "headers": {}}, SimpleNamespace(name="GetRecords"))


def test_a_whole_answer_is_taken() -> None:
    check_whole(
        {"status_code": 200, "body": b'{"Records": ["\xc3\xa9"]}', "headers": {}}, SimpleNamespace(name="GetRecords")
    )
