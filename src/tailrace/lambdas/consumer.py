"""A consumer of a topic as a Lambda function: appends start it, and it invokes itself again if its time runs out.

    TAILRACE_HOME      the home's URL, s3://bucket/prefix?table=NAME
    TAILRACE_TOPIC     the topic
    TAILRACE_GROUP     the consumer group
    TAILRACE_HANDLER   module:function, called with each record

An event source mapping sends it the stream of the home's table, filtered to the heads of topics: each append to the
topic changes its head.  The function joins the group, handles records until none are left, commits its position and
leaves.  It also stops shortly before Lambda would end it; if records are left, it invokes itself asynchronously.  When
the handler raises, so does the function: Lambda invokes it again, and it continues with the record that failed.  Lambda
gives up after some attempts, after two more if the function had invoked itself: then records wait for the next append.
So have what fails sent to a queue that somebody watches, as deploy/aws does for both ways.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import boto3

from tailrace.errors import BadSetting
from tailrace.home import Home
from tailrace.home import open as open_home
from tailrace.lambdas.stream_event import changes_of, table_of
from tailrace.log.format.head import head_key
from tailrace.log.record import Record
from tailrace.log.topic import Topic

AGAIN = {"tailrace": "again"}
"""The event with which the function invokes itself."""
MARGIN_SECONDS = 20.0
"""Time reserved for the current record, the last commit and leaving the group; at most a third of the time left."""

log = logging.getLogger(__name__)


class Context(Protocol):
    """The context object that Lambda passes to a function, as far as it is used here."""

    invoked_function_arn: str

    def get_remaining_time_in_millis(self) -> int:
        """The milliseconds until Lambda ends this invocation."""


@dataclass(slots=True)
class ConsumerFunction:
    """Consumes one topic for one group; `again` invokes the function of an ARN and returns at once."""

    home: Home
    topic: str
    group: str
    handle: Callable[[Record], object]
    again: Callable[[str], object]

    def consume(self, event: Any, context: Context) -> dict[str, Any]:
        """Handle the topic's records if the event may concern it; returns their number and whether none are left."""
        topic = self.home.topic(self.topic)
        if not _concerns(event, topic):
            return {"records": 0, "caught_up": True}
        seconds = context.get_remaining_time_in_millis() / 1000
        seconds -= min(MARGIN_SECONDS, seconds / 3)
        with topic.consumer(self.group, max_seconds=seconds) as consumer:
            ran = consumer.run(self.handle)
        if not ran.caught_up:
            self.again(context.invoked_function_arn)
        return {"records": ran.records, "caught_up": ran.caught_up}


def _concerns(event: Any, topic: Topic) -> bool:
    """Whether an event may mean new records: False only if all of its changes are of items other than the head."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not records:
        return True
    changes = changes_of(event, table_of(records[0].get("eventSourceARN", "")))
    return any(change.key == head_key(topic.id) for change in changes)


def of_environment(environment: Mapping[str, str]) -> ConsumerFunction:
    """The function that these environment variables configure; `BadSetting` if one is missing."""
    needed = ("TAILRACE_HOME", "TAILRACE_TOPIC", "TAILRACE_GROUP", "TAILRACE_HANDLER")
    if missing := [name for name in needed if not environment.get(name)]:
        raise BadSetting(f"{' and '.join(missing)} must be set")
    home, topic, group, handle = (environment[name] for name in needed)
    return ConsumerFunction(open_home(home), topic, group, named(handle), invoke)


def named(name: str) -> Callable[[Record], object]:
    """Import the handler that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSetting(f"TAILRACE_HANDLER={name!r} cannot be loaded: {error}; write module:function") from error
    if not callable(found):
        raise BadSetting(f"TAILRACE_HANDLER={name!r} is no function; write module:function")
    return found  # type: ignore[no-any-return]


def invoke(arn: str) -> None:
    """Invoke a Lambda function asynchronously."""
    client: Any = boto3.client("lambda")
    client.invoke(FunctionName=arn, InvocationType="Event", Payload=json.dumps(AGAIN).encode())


_functions: list[ConsumerFunction] = []


def handler(event: Any, context: Context) -> dict[str, Any]:
    """The entry point for Lambda."""
    if not _functions:
        _functions.append(of_environment(os.environ))
    done = _functions[0].consume(event, context)
    log.info("consumed %s", json.dumps(done))
    return done
