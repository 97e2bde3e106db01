"""The consumer's Lambda function: started by appends, started again by itself until it has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadSetting, UnknownTopic
from tailrace.home import Home
from tailrace.lambdas import consumer as function
from tailrace.lambdas.consumer import AGAIN, ConsumerFunction, handler, named, of_environment
from tailrace.log.format.head import head_key
from tailrace.log.record import Record
from tailrace.storage.tables import Key

ARN = "arn:aws:lambda:us-east-1:123456789012:function:tailrace-consumer"


class Context:
    """A call that may go on for so many seconds."""

    invoked_function_arn = ARN

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._end - time.monotonic()) * 1000))


@pytest.fixture
def home() -> Iterator[Home]:
    with tailrace.open("memory://") as home:
        home.create_topic("orders", 2)
        home.create_topic("noise", 1)
        yield home


class Life:
    """The function with what Lambda does for it: a start that was asked for happens after the call."""

    def __init__(self, home: Home, handle: Callable[[Record], object]) -> None:
        self.starts: list[str] = []
        self.function = ConsumerFunction(home, "orders", "mailer", handle, self.starts.append)

    def call(self, event: Any = None, seconds: float = 60) -> dict[str, Any]:
        return self.function.consume(event if event is not None else AGAIN, Context(seconds))


def change(key: Key) -> dict[str, Any]:
    """A record of a table's stream, as Lambda delivers it."""
    keys = {"p": {"S": key.p}, "i": {"N": str(key.i)}}
    return {
        "eventID": "1",
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/home/stream/1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1.0,
            "Keys": keys,
            "NewImage": {**keys, "e": {"L": []}},
            "SequenceNumber": "1",
            "StreamViewType": "NEW_IMAGE",
        },
    }


def test_an_append_starts_it_and_it_handles_all_there_is(home: Home) -> None:
    orders, seen = home.topic("orders"), []
    life = Life(home, lambda record: seen.append(record.value))
    orders.append([(b"%d" % n, b"%d" % n) for n in range(50)])
    event = {"Records": [change(head_key("another")), change(head_key(orders.id))]}
    assert life.call(event) == {"records": 50, "caught_up": True}
    assert sorted(seen) == sorted(b"%d" % n for n in range(50))
    assert life.call(event) == {"records": 0, "caught_up": True}
    assert life.starts == []


def test_appends_to_other_topics_do_not_make_it_join_the_group(home: Home) -> None:
    home.topic("orders").append([(b"k", b"v")])
    noise = home.topic("noise")
    life = Life(home, lambda record: pytest.fail("nothing was to be read"))
    assert life.call({"Records": [change(head_key(noise.id))]}) == {"records": 0, "caught_up": True}


def test_when_its_time_ends_first_it_starts_itself_until_all_is_handled_once(home: Home) -> None:
    seen: list[bytes | None] = []

    def slow(record: Record) -> None:
        time.sleep(0.02)
        seen.append(record.value)

    life = Life(home, slow)
    home.topic("orders").append([(b"%d" % n, b"%d" % n) for n in range(60)])
    calls = 0
    while not (done := life.call(seconds=0.6))["caught_up"]:
        calls += 1
        assert life.starts == [ARN] * calls
        assert calls < 600, done
    assert calls > 0
    assert len(life.starts) == calls
    assert sorted(seen) == sorted(b"%d" % n for n in range(60))


def test_a_start_that_fails_is_an_error_so_lambda_tries_again(home: Home) -> None:
    def failing(arn: str) -> None:
        raise RuntimeError("throttled")

    home.topic("orders").append([(b"k", b"v")])
    with pytest.raises(RuntimeError, match="throttled"):
        ConsumerFunction(home, "orders", "mailer", lambda record: None, failing).consume(AGAIN, Context(0))


def test_a_record_that_fails_is_given_again_and_those_before_it_are_not(home: Home) -> None:
    seen: list[int] = []

    def handle(record: Record) -> None:
        if record.offset == 3 and seen.count(3) == 0:
            seen.append(3)
            raise ValueError("the mail server is away")
        seen.append(record.offset)

    home.create_topic("single", 1).append([(b"k", b"%d" % n) for n in range(6)])
    life = ConsumerFunction(home, "single", "mailer", handle, pytest.fail)
    with pytest.raises(ValueError, match="mail server"):
        life.consume(AGAIN, Context(60))
    assert life.consume(AGAIN, Context(60))["records"] == 3
    assert seen == [0, 1, 2, 3, 3, 4, 5]


def test_the_environment_says_what_to_consume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "shop_of_a_lambda.py").write_text("seen = []\n\ndef mail(record):\n    seen.append(record.value)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with tailrace.open(tmp_path / "home") as home:
        home.create_topic("orders", 1).append([(b"k", b"v")])
    for name, value in {
        "TAILRACE_HOME": str(tmp_path / "home"),
        "TAILRACE_TOPIC": "orders",
        "TAILRACE_GROUP": "mailer",
        "TAILRACE_HANDLER": "shop_of_a_lambda:mail",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(function, "_functions", [])
    assert handler(AGAIN, Context(60)) == {"records": 1, "caught_up": True}
    function._functions[0].home.close()


def test_what_cannot_be_used_is_named(home: Home) -> None:
    with pytest.raises(BadSetting, match="TAILRACE_TOPIC and TAILRACE_HANDLER must be set"):
        of_environment({"TAILRACE_HOME": "memory://", "TAILRACE_GROUP": "g"})
    for name in ("no_such_module:mail", "json:no_such_function", "json", ":mail"):
        with pytest.raises(BadSetting, match="write module:function"):
            named(name)
    with pytest.raises(BadSetting, match="is no function"):
        named("json:__name__")
    with pytest.raises(UnknownTopic):
        ConsumerFunction(home, "nothing", "g", print, print).consume(AGAIN, Context(1))
