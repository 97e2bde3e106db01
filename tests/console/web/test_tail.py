"""The live tail's event stream: what it sends of a topic that is faster than a page."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tailrace.home import Home
from tests.console.web.conftest import Visitor


def rows(site: Visitor, path: str) -> dict[str, Any]:
    """The first rows that the tail of a page gets."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    try:
        connection.request("GET", path, None, {**site.headers, "Accept": "text/event-stream"})
        answer, got = connection.getresponse(), list[dict[str, Any]]()
        while len(got) < 2:  # the first ones are empty: the stream is open
            line = answer.readline()
            if line.startswith(b"data: "):
                got.append(json.loads(line[6:]))
        return got[1]
    finally:
        connection.close()


def test_a_tail_that_is_far_behind_goes_on_with_the_newest(site: Visitor, filled: Home) -> None:
    fast = filled.topic("fast", partitions=1)
    for first in range(0, 5000, 500):
        fast.append([(None, b"%d " % n + b"x" * 1000) for n in range(first, first + 500)])
    first = rows(site, "/topics/fast/tail?from=0:0")
    assert ">4,999<" in first["html"]
    assert int(first["dropped"]) == 4900
    some = rows(site, "/topics/fast/tail?from=0:4500")
    assert (">4,999<" in some["html"], some["dropped"]) == (True, "400")
    found = rows(site, "/topics/fast/tail?from=0:0&q=17%20x")
    assert ">17<" in found["html"]
