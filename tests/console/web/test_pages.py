"""Every page answers, in HTML that holds nothing of a record as markup; tables sort and filter by the address."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from tailrace.home import Home
from tests.console.serving import VIEWER, Client, running
from tests.console.web.conftest import Visitor, visitor
from tests.console.web.filled import LARGE
from tests.console.web.pipelines import SECRET

STREAM = quote("Cart-1/<b>", safe="")
PAGES = (
    "/", "/topics", "/topics/orders", "/topics/orders/records", "/topics/orders/records?q=hurt",
    "/topics/orders/records/0/0", "/topics/orders/records/0/1", "/topics/orders/records/0/1?view=hex",
    "/topics/orders/records/0/2", "/topics/orders/records/1/0", "/topics/orders/records/1/1", "/topics/orders/tail",
    "/topics/orders/produce", "/topics/orders/settings", "/topics/orders/delete", "/new-topic",
    "/groups", "/groups/billing/orders", "/groups/billing/orders/reset", "/groups/billing/orders/positions/0",
    "/groups/billing/orders/delete", "/queues", "/queues/mails", "/queues/mails/dead", "/queues/mails/dead/0",
    "/queues/mails/pause", "/queues/mails/play", "/queues/mails/purge", "/queues/mails/replay", "/queues/mails/push",
    "/queues/mails/rebalance", "/queues/mails/settings", "/queues/mails/delete",
    "/queues/mails/requeue?number=0", "/new-queue", "/events", "/events/categories/Cart", f"/events/streams/{STREAM}",
    "/events/feed", "/events/feed?id=conversation", "/streams", "/streams/Person", "/streams/Person/groups/mailer",
    "/streams/Person/groups/mailer/dead", "/events/consumers/teller/dead",
    "/pipelines", "/pipelines/shop",
    "/pipelines/shop/log", "/pipelines/shop/dead/0", "/pipelines/shop/writers/file/mark",
    "/pipelines/shop/writers/file/forget", "/home",
    "/home/actions", "/home/start/scrub", "/home/start/upkeep", "/home/start/cost",
)  # fmt: skip


class Outline(HTMLParser):
    """What a browser would make of a page: its tags, and attributes that could run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.risky: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one."""
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))
        for name, value in attrs:
            outside = name in ("src", "href", "action") and not re.match(r"[/?#]", value or "/")
            if name.startswith("on") or name == "style" or outside:
                self.risky.append((tag, name))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_answers_and_nothing_in_it_can_run(site: Visitor, path: str) -> None:
    outline = Outline(site.page(path))
    assert outline.scripts == [{"type": "module", "src": "/static/console.js"}]
    assert outline.risky == []
    assert outline.tags.count("h1") == 1
    assert outline.tags.count("img") == 1  # the mark in the corner


def test_a_topic_cannot_be_named_so_that_its_page_hurts(site: Visitor) -> None:
    for path in (
        "/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/queues/%3Cimg%20src=x%20onerror=a%3E",
        "/%3Cscript%3E",
    ):
        outline = Outline(site.page(path, 400 if path.startswith(("/topics", "/queues")) else 404))
        assert len(outline.scripts) == 1


def test_large_numbers_keep_their_digits(site: Visitor) -> None:
    assert f": {LARGE}," in site.page("/topics/orders/records/0/2")
    assert str(LARGE) in site.page(f"/events/streams/{STREAM}")
    assert str(LARGE) in site.page("/queues/mails/dead/0")
    assert str(LARGE) in site.page("/pipelines/shop/dead/0")


def test_no_setting_of_a_pipeline_is_shown(site: Visitor) -> None:
    for path in PAGES:
        assert SECRET not in site.page(path), path


def test_what_cannot_be_seen_has_a_picture(site: Visitor) -> None:
    text = site.page("/topics/orders/records/1/1?view=text")
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "⟨U+202E⟩gnp.exe␛[31m" in text


def test_tables_filter_and_sort_by_the_address(site: Visitor, filled: Home) -> None:
    for n in range(60):
        filled.create_topic(f"t{n:02}")
    first = site.page("/topics?q=t0")
    assert [f"/topics/t{n:02}" in first for n in (0, 9, 10)] == [True, True, False]
    down = site.page("/topics?q=t&sort=-name")
    assert down.index("/topics/t59") < down.index("/topics/t58")
    assert 'aria-sort="descending"' in down
    assert "/topics/t00" not in down
    assert "/topics/t00" in site.page("/topics?q=t0&sort=-name&page=1")
    assert "No row has" in site.page("/topics?q=%3Cscript%3E")


def test_an_empty_home_says_what_to_type(home: Home, place: Path) -> None:
    with running(place) as client:
        empty = visitor(client)
        for path, command in (
            ("/topics", "tailrace topic create"), ("/queues", "tailrace queue push"),
            ("/events", "tailrace events append"),
            ("/pipelines", "tailrace run"), ("/groups", "consumer("), ("/streams", "engine.bind"),
        ):  # fmt: skip
            assert command in empty.page(path)


def test_a_viewer_sees_no_buttons_and_is_refused_the_forms(site: Visitor) -> None:
    viewer = visitor(site, VIEWER)
    assert "/topics/orders/produce" not in viewer.page("/topics/orders")
    assert "role operator" in viewer.page("/topics/orders/produce", 403)
    assert viewer.submit("/queues/mails/pause", why="x").status == 403


@pytest.mark.parametrize("path", ["/topics/none", "/queues/none", "/groups/none/orders", "/topics/orders/records/0/99"])
def test_what_is_not_there_is_said(site: Visitor, path: str) -> None:
    text = site.page(path, 404 if "99" not in path else 416)
    assert 'role="alert"' in text


def test_without_a_token_there_is_no_page_but_the_way_in(site: Visitor) -> None:
    for path in ("/topics", "/queues/mails", "/home"):
        answer = Client(site.port, None).get(path)
        assert answer.status == 401
        assert b"tailrace serve" in answer.body
        assert b"orders" not in answer.body


def test_static_files_are_ours_only(site: Visitor) -> None:
    assert site.get("/static/console.js").headers["Content-Type"].startswith("text/javascript")
    for path in ("/static/", "/static/..%2Fsite.py", "/static/../site.py", "/static/a/b", "/static/none.js"):
        assert site.get(path).status == 404


def test_a_record_is_appended_once_more_as_it_was(site: Visitor, filled: Home) -> None:
    orders = filled.topic("orders")
    with orders.transaction() as out:
        for q in (0, 1):  # one of them is where a record with this key does not go by itself
            out.send(b"key", b"\xff", headers=[("trace", b"1"), ("trace", b"2"), ("raw", b"\xff")], partition=q)
    for q, (_, end) in orders.ends().items():
        text = site.page(f"/topics/orders/records/{q}/{end - 1}").partition("append it once more")[2]
        command = shlex.split(unescape(text.partition("<code>")[2].partition("</code>")[0]))
        path = "/api/v1" + command[-1].partition("/api/v1")[2]
        assert Client(site.port).post(path, json.loads(command[command.index("-d") + 1])).status == 201
        first, again = [*orders.records(q)][-2:]
        assert (again.key, again.value, again.headers) == (first.key, first.value, first.headers)
