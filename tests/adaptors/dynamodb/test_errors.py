"""Trouble: one line each, with what mends it, and never a secret in it."""

from __future__ import annotations

import contextlib
import re
import traceback
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tailrace.adaptors.dynamodb.errors import failed
from tailrace.adaptors.dynamodb.settings import DynamoSink, DynamoSource
from tailrace.adaptors.dynamodb.sink.writer import DynamoWriter
from tailrace.adaptors.dynamodb.source.reader import DynamoReader
from tailrace.adaptors.registry import adaptor, make_reader, make_writer
from tailrace.errors import (
    BadSetting,
    NotReady,
    TailraceError,
    Throttled,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownTable,
)
from tests.adaptors.dynamodb.place import Place
from tests.cli.runs import Cli
from tests.servers.process import free_ports

pytestmark = pytest.mark.server
SECRET = "hunter2-very-secret"


def said(kind: type[TailraceError], end: DynamoReader | DynamoWriter) -> str:
    """The message of what `check` raises, after looking for secrets in all that is printed of it."""
    with contextlib.closing(end), pytest.raises(kind) as caught:
        end.check()
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(end)
    assert SECRET not in printed
    assert "\n" not in str(caught.value)
    return str(caught.value)


def both(**settings: Any) -> list[DynamoReader | DynamoWriter]:
    return [DynamoReader(DynamoSource(**settings)), DynamoWriter(DynamoSink(**settings))]


def test_nobody_listens_there() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    for end in both(endpoint=url):
        assert re.search(f"DynamoDB at {url}, .*cannot connect.*are region and endpoint right", said(Unavailable, end))


def test_something_else_listens_there(place: Place) -> None:
    for end in both(endpoint=f"{place.server.url}/elsewhere/"):
        end.close()
    assert "cannot use the endpoint" in said(NotReady, DynamoReader(DynamoSource(endpoint="nowhere")))


def test_no_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for end in both():
        assert said(NotReady, end) == "no AWS region is set; set region = …, or AWS_REGION"


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, place: Place) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for end in both(endpoint=place.server.url):
        assert "no usable AWS credentials; `aws sts get-caller-identity`" in said(NotReady, end)


def test_a_profile_that_is_not_there() -> None:
    for end in both(profile="nobody"):
        assert "no profile 'nobody'" in said(BadSetting, end)


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("UnrecognizedClientException", 400, NotReady, "does not accept the credentials"),
        ("ExpiredTokenException", 400, NotReady, "renew them"),
        ("AccessDeniedException", 400, NotReady, "allow them dynamodb:Scan"),
        ("ProvisionedThroughputExceededException", 400, Throttled, "refused for now"),
        ("ThrottlingException", 400, Throttled, "refused for now"),
        ("InternalServerError", 500, TimedOut, "InternalServerError"),
        ("ResourceNotFoundException", 400, UnknownTable, "there is no table orders in DynamoDB in eu-west-1"),
        ("ValidationException", 400, NotReady, "ValidationException: it says why"),
    ],
)
def test_what_aws_refuses(code: str, status: int, kind: type[TailraceError], words: str) -> None:
    answer: Any = {"Error": {"Code": code, "Message": "it says\nwhy"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    made = failed(ClientError(answer, "Scan"), "in eu-west-1", "Scan", "orders")
    assert type(made) is kind
    assert words in str(made)
    assert "\n" not in str(made)


def test_an_item_that_is_too_large() -> None:
    answer: Any = {
        "Error": {"Code": "ValidationException", "Message": "Item size has exceeded the maximum allowed size"}
    }
    assert type(failed(ClientError(answer, "PutItem"), "in eu-west-1", "PutItem", "orders")) is TooLarge


def test_a_state_table_of_somebody_else(place: Place) -> None:
    table = place.table("theirs")
    assert f"the table {table} is not one of tailrace's own" in said(NotReady, place.writer(state=table))


def test_settings() -> None:
    with pytest.raises(BadSetting, match="did you mean 'region'"):
        make_reader("dynamodb", {"regoin": "eu-west-1"})
    with pytest.raises(BadSetting, match="write"):
        make_writer("dynamodb", {"write": "carelessly"})
    make_reader("dynamodb", {"region": "eu-west-1", "read_units": 25}).close()
    make_writer("dynamodb", {"region": "eu-west-1", "write_units": "25"}).close()


def test_about(tmp_path: Any) -> None:
    told = Cli(tmp_path)("about", "dynamodb").out
    assert "exactly once" in told
    for word in ("region", "endpoint", "read_units", "write", "state", "shape"):
        assert word in told
    assert adaptor("dynamodb").limits
