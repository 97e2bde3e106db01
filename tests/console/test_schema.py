"""What the OpenAPI document says is true: whatever is sent, no answer is outside of it, and none is a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

import tailrace
from tailrace.console.api.table import DOCUMENT, OPERATIONS
from tailrace.console.limits import Limits
from tailrace.events import Event
from tests.console.serving import OPERATOR, Client, running

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = 12
"""Requests of each operation: enough for a change of the API; `HYPOTHESIS_PROFILE` runs more."""

schema = schemathesis.openapi.from_dict(DOCUMENT)


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def as_lines(context: Any, value: Any) -> bytes:
    """A line of JSON; as Arrow it is nonsense, which must be refused as such."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of a home with one of everything; streams end at once, since nobody can wait for their end."""
    place = tmp_path_factory.mktemp("schema") / "home"
    filled(place)
    with running(place, limits=Limits(wait_seconds=0.05)) as client:
        yield client


def filled(place: Path) -> None:
    with tailrace.open(place) as home:
        home.create_topic("0", 2).append([(b"k", b"\xff"), (None, None)])
        home.queue("q", shards=1).push({"a": 1})
        home.events().stream("A-0").append([Event("A", b"{}")])


KNOWN = {
    "topic": "0", "group": "g", "queue": "q", "stream": "A-0", "producer": "p", "shard": 0, "offset": 0, "number": 1,
    "table": "User", "lease": "none", "pipeline": "shop", "writer": "w",
}  # fmt: skip
"""What is there to be named in a path."""


@pytest.mark.parametrize("known", [False, True], ids=["any", "known"])
@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True
)
def test_every_answer_is_as_described(case: Any, served: Client, known: bool) -> None:
    if known and case.path_parameters:
        case.path_parameters = {name: KNOWN[name] for name in case.path_parameters}
    headers = {"Authorization": f"Bearer {OPERATOR}", "Accept": "application/json"}
    response = case.call(base_url=f"http://127.0.0.1:{served.port}/api/v1", headers=headers)
    case.validate_response(response, checks=CHECKS)


def test_every_operation_is_described_once(served: Client) -> None:
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))
    told = served.get("openapi.json").json
    assert {(path, method.upper()) for path, methods in told["paths"].items() for method in methods} == {
        (one.path, one.method) for one in OPERATIONS
    }
    assert all(one.about.endswith(".") for one in OPERATIONS)
