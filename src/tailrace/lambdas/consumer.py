"""A consumer of a topic as a Lambda function: appends start it, and it starts itself again if its time ends first.

    TAILRACE_HOME      the home's URL, s3://bucket/prefix?table=NAME
    TAILRACE_TOPIC     the topic
    TAILRACE_GROUP     the consumer group
    TAILRACE_HANDLER   module:function, called with each record

The stream of the home's table is mapped to it, filtered to the heads of topics: each append to the topic changes its
head.  The function joins the group, handles records until there are none left, and leaves; it commits what it handled.
Shortly before its time is over it stops, too, and if records are left invokes itself, without waiting for an answer.
An error of the handler is raised: Lambda starts the function again, and it goes on with the record that failed.
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
"""The event that the function starts itself with."""
MARGIN_SECONDS = 20.0
"""Time kept back for the record in hand, the last commit and leaving the group; never more than a third of all."""

log = logging.getLogger(__name__)


class Context(Protocol):
    """What Lambda tells a function of its call."""

    invoked_function_arn: str

    def get_remaining_time_in_millis(self) -> int:
        """How long it may go on."""


@dataclass(slots=True)
class ConsumerFunction:
    """Consumes one topic for one group; `again` starts the function of this ARN again, and returns at once."""

    home: Home
    topic: str
    group: str
    handle: Callable[[Record], object]
    again: Callable[[str], object]

    def consume(self, event: Any, context: Context) -> dict[str, Any]:
        """Handle what the topic has, if an event is about it; gives how many records, and whether those were all."""
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
    """Whether an event may mean new records: any but one that has only changes of other items than the topic's head."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not records:
        return True
    changes = changes_of(event, table_of(records[0].get("eventSourceARN", "")))
    return any(change.key == head_key(topic.id) for change in changes)


def of_environment(environment: Mapping[str, str]) -> ConsumerFunction:
    """The function that some environment variables describe."""
    needed = ("TAILRACE_HOME", "TAILRACE_TOPIC", "TAILRACE_GROUP", "TAILRACE_HANDLER")
    if missing := [name for name in needed if not environment.get(name)]:
        raise BadSetting(f"{' and '.join(missing)} must be set")
    home, topic, group, handle = (environment[name] for name in needed)
    return ConsumerFunction(open_home(home), topic, group, named(handle), invoke)


def named(name: str) -> Callable[[Record], object]:
    """The function that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSetting(f"TAILRACE_HANDLER={name!r} cannot be loaded: {error}; write module:function") from error
    if not callable(found):
        raise BadSetting(f"TAILRACE_HANDLER={name!r} is no function; write module:function")
    return found  # type: ignore[no-any-return]


def invoke(arn: str) -> None:
    """Start a Lambda function, without waiting for it."""
    client: Any = boto3.client("lambda")
    client.invoke(FunctionName=arn, InvocationType="Event", Payload=json.dumps(AGAIN).encode())


_functions: list[ConsumerFunction] = []


def handler(event: Any, context: Context) -> dict[str, Any]:
    """What Lambda calls."""
    if not _functions:
        _functions.append(of_environment(os.environ))
    done = _functions[0].consume(event, context)
    log.info("consumed %s", json.dumps(done))
    return done
