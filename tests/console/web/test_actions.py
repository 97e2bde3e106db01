"""Each action as a form without a script: asked for a reason, refused without one, done, and in the audit list."""

from __future__ import annotations

import re
import time
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.rows.rows import make_rows
from tailrace.console.web.pages.concerns import _of_topics
from tailrace.errors import Lost, Unavailable
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import ledger, operator
from tailrace.streams import Engine
from tests.console.serving import Answer
from tests.console.web.conftest import Visitor


def went(site: Visitor, answer: Answer) -> str:
    """The page that comes after an action."""
    assert answer.status == 303, answer.body.decode()
    return site.page(answer.headers["Location"])


def test_a_record_is_produced_and_shown(site: Visitor, filled: Home) -> None:
    sent = site.submit("/topics/orders/produce", key="k", kind="json", value='{"n": 9007199254740993}',
                       headers="trace: 1", partition="1", why="was lost")  # fmt: skip
    text = went(site, sent)
    assert "Appended at offset 2 of partition 1" in text
    assert "9007199254740993" in text
    record = [*filled.topic("orders").records(1)][-1]
    assert (record.key, record.value, [*record.headers]) == (b"k", b'{"n": 9007199254740993}', [("trace", b"1")])
    done = site.get("/api/v1/home/actions").json["actions"][-1]
    assert (done["what"], done["why"], done["about"]) == ("append record", "was lost", {"topic": "orders"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"kind": "json", "value": "{"}, "is no JSON"), ({"kind": "base64", "value": "?"}, "no base64"),
     ({"kind": "text", "value": "a", "headers": "x"}, "a header is"),
     ({"kind": "text", "partition": "9"}, "from 0 to 1")],
)  # fmt: skip
def test_what_is_refused_stays_in_the_form(site: Visitor, filled: Home, fields: dict[str, str], said: str) -> None:
    answer = site.submit("/topics/orders/produce", key="<kept>", **fields)
    text = answer.body.decode()
    assert answer.status == 400
    assert said in text
    assert "&lt;kept&gt;" in text
    assert sum(b for _, b in filled.topic("orders").ends().values()) == 5


def test_topics_are_made_changed_and_deleted(site: Visitor, filled: Home) -> None:
    went(site, site.submit("/new-topic", name="made", partitions="3"))
    assert filled.topic("made").partitions == 3
    assert site.submit("/topics/made/settings", setting="retention_ms", value="60000").status == 400
    went(site, site.submit("/topics/made/settings", setting="retention_ms", value="60000", why="short"))
    assert filled.topic("made").settings.retention_ms == 60000
    assert "1 min" in site.page("/topics/made")
    assert site.submit("/topics/made/delete", name="mad", why="gone").status == 400
    assert "made" in filled.topics()
    went(site, site.submit("/topics/made/delete", name="made", why="gone"))
    assert "made" not in filled.topics()
    listed = site.page("/home/actions")
    assert all(what in listed for what in ("create topic", "change topic", "delete topic", "ada@127.0.0.1", "gone"))


def positions(site: Visitor) -> list[str]:
    """Where the group is."""
    return re.findall(r"from=(\d+)", site.page("/groups/billing/orders"))


def test_a_group_is_moved_after_a_preview(site: Visitor) -> None:
    path = "/groups/billing/orders/reset"
    before = positions(site)
    preview = site.submit(path, to="latest", preview="yes").body.decode()
    assert "will not be read" in preview
    assert positions(site) == before
    assert "say why" in site.submit(path, to="latest").body.decode()
    went(site, site.submit(path, to="latest", why="done elsewhere"))
    assert positions(site) == ["3", "2"]
    assert "will be read again" in site.submit(path, to="earliest", preview="yes").body.decode()
    assert "done elsewhere" in site.page("/home/actions")


def test_one_partition_of_a_group_is_set(site: Visitor) -> None:
    went(site, site.submit("/groups/billing/orders/reset", to="earliest", why="again"))
    path = "/groups/billing/orders/positions/1"
    assert site.submit(path, offset="9", why="x").status == 400
    assert site.submit(path, offset="1").status == 400
    assert "Partition 1 is at 1 now" in went(site, site.submit(path, offset="1", why="skip the bytes"))
    assert "set position" in site.page("/home/actions")


def test_a_queue_is_paused_and_played(site: Visitor, filled: Home) -> None:
    assert site.submit("/queues/mails/pause").status == 400
    assert not filled.queue("mails").stats().paused
    assert "paused" in went(site, site.submit("/queues/mails/pause", why="sink is away"))
    assert filled.queue("mails").stats().paused
    assert "is paused" in site.page("/")
    went(site, site.submit("/queues/mails/play", why="back"))
    assert not filled.queue("mails").stats().paused


def test_a_dead_letter_is_read_and_put_back_with_its_key(site: Visitor, filled: Home) -> None:
    (letter,) = filled.queue("mails").dead()
    text = went(site, site.submit("/queues/mails/requeue", numbers="0", why="template is there"))
    assert "1 message put back" in text
    (again,) = [r for q in (0, 1) for r in filled.topic("mails").records(q) if r.value == letter.message][1:]
    assert again.key == letter.shard_key
    assert site.submit("/queues/mails/requeue", numbers="x", why="y").status == 400


def test_a_message_is_pushed_and_its_life_is_told(site: Visitor) -> None:
    text = went(site, site.submit("/queues/mails/push", json='{"a": 1}', key="k"))
    assert "Pushed; this is its life" in text
    done = site.get("/api/v1/home/actions").json["actions"][-1]
    assert (done["what"], done["about"]) == ("push message", {"queue": "mails"})
    assert site.submit("/queues/mails/push", json="{").status == 400
    assert "Held back" in went(site, site.submit("/queues/mails/push", json="1", delay="600"))
    assert "shard and its offset" in site.page("/queues/mails/messages?shard=0", 400)


def test_a_queue_gets_shards_and_settings_and_is_deleted(site: Visitor, filled: Home) -> None:
    path = "/queues/mails"
    assert "say why" in site.submit(f"{path}/rebalance", shards="3").body.decode()
    assert "3 shards" in went(site, site.submit(f"{path}/rebalance", shards="3", why="more workers"))
    assert filled.queue("mails").shards == 3
    assert site.submit(f"{path}/settings", setting="attempts", value="many", why="x").status == 400
    assert "attempts is 9 now" in went(
        site, site.submit(f"{path}/settings", setting="attempts", value="9", why="the sink is slow")
    )
    assert filled.queue("mails").settings.attempts == 9
    assert site.submit(f"{path}/delete", name="mail", why="x").status == 400
    assert filled.queues() == ["mails"]
    assert "The queue mails is deleted" in went(site, site.submit(f"{path}/delete", name="mails", why="replaced"))
    assert filled.queues() == []


def test_purge_and_replay(site: Visitor, filled: Home) -> None:
    went(site, site.submit("/queues/mails/purge", why="not needed"))
    assert filled.queue("mails").stats().backlog == 0
    assert "will be delivered again" in went(
        site, site.submit("/queues/mails/replay", **{"from": "1h", "why": "again"})
    )


def test_a_writer_is_marked_after_a_preview_and_forgotten(site: Visitor, filled: Home) -> None:
    ends = filled.topic("shop-log").ends()
    where = next(q for q, (_, end) in ends.items() if end)
    path, fields = "/pipelines/shop/writers/file/mark", {"partition": where, "offset": "0"}
    assert "1 message will not be delivered" in site.submit(path, preview="yes", **fields).body.decode()
    assert operator.marks(filled, "shop", "file")[where].low == -1
    assert "say why" in site.submit(path, **fields).body.decode()
    text = went(site, site.submit(path, why="row is bad", **fields))
    assert operator.marks(filled, "shop", "file")[where].low == 0
    assert "mark: row is bad" in text
    assert "ada@127.0.0.1" in text
    assert site.submit(path, partition=where, offset="99", why="x").status == 400
    went(site, site.submit("/pipelines/shop/writers/file/forget", why="again"))
    assert operator.marks(filled, "shop", "file")[where].low == -1


def test_the_overview_says_what_needs_attention(site: Visitor, filled: Home) -> None:
    filled.topic("orders").quarantine([Lost(0, 1, 2)], "the disk of 3 May")
    text = site.page("/")
    for what, link in (
        ("Writer file of shop is stopped", "/pipelines/shop"),
        ("Queue mails has 1 dead letter", "/queues/mails/dead"),
        ("Pipeline shop is not running", "/pipelines/shop"),
        ("Consumer teller of the feed has passed 2 records", "/events/consumers/teller/dead"),
        ("Group mailer of table Person has passed 1 record", "/streams/Person/groups/mailer/dead"),
        ("Readers of orders pass over 1 damaged range", "/topics/orders"),
    ):
        assert f'href="{link}"' in text.partition(what)[2].partition("</li>")[0], what


def test_tables_that_may_not_be_listed_hide_nothing_else(site: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(engine: Engine) -> list[str]:
        raise Unavailable("no right to list tables")

    monkeypatch.setattr(Engine, "tables", refuse)
    text = site.page("/")
    assert "The groups of change streams cannot be read: no right to list tables" in text
    assert "Consumer teller of the feed has passed 2 records" in text
    told = site.get("/metrics").body
    assert (b"tailrace_feed_dead" in told, b"tailrace_stream_dead" in told) == (True, False)


def test_upkeep_that_is_due_needs_attention(site: Visitor, filled: Home) -> None:
    kept = filled.create_topic("kept", retention_ms=1000)
    days = kept.described.created / 1000 + 3 * 86400
    assert _of_topics(filled, ["orders"], days) == []
    assert _of_topics(filled, ["kept"], kept.described.created / 1000 + 3600) == []
    (due,) = _of_topics(filled, ["orders", "kept"], days)
    assert (due.what, due.link) == (
        "Upkeep has never run: 1 topic with retention or compaction may keep too much", "/home/start/upkeep"
    )  # fmt: skip
    assert "it has never run" in site.page("/home")
    filled.upkeep()
    assert _of_topics(filled, ["kept"], time.time() + 86400) == []
    (due,) = _of_topics(filled, ["kept"], time.time() + 3 * 86400)
    assert "last ran 3 d ago" in due.what
    assert "it has never run" not in site.page("/home")


def test_a_scrub_is_started_and_watched(site: Visitor) -> None:
    answer = site.submit("/home/start/scrub", topics="orders", sample="1", why="monthly")
    text = went(site, answer)
    while "running" in text:
        text = site.page(answer.headers["Location"].partition("?")[0])
    assert '"damaged": []' in text or "done" in text
    assert site.submit("/home/start/scrub", sample="2").status == 400


def test_a_form_of_another_site_does_nothing(site: Visitor, filled: Home) -> None:
    for origin in ("http://evil.example", "null"):
        answer = site.ask("POST", "/queues/mails/pause", b"why=x", Origin=origin,
                          Content_Type="application/x-www-form-urlencoded")  # fmt: skip
        assert answer.status == 403
    assert site.ask("POST", "/queues/mails/pause", b"why=x").status == 403
    assert not filled.queue("mails").stats().paused


def test_a_page_keeps_the_origin_of_its_forms(site: Visitor) -> None:
    """Under no-referrer a browser sends a form with the Origin null, and the server would refuse its own pages."""
    assert site.get("/queues/mails/pause").headers["Referrer-Policy"] == "same-origin"


def test_a_notice_is_told_once_and_cannot_be_made_up(site: Visitor) -> None:
    where = site.submit("/queues/mails/pause", why="x").headers["Location"]
    assert "Done: pause" in site.page(where)
    assert "Done: pause" not in site.page(where)
    assert "made-up" not in site.page("/queues/mails?notice=made-up").replace("notice=made-up", "")


def test_pages_take_no_other_methods(site: Visitor) -> None:
    assert site.ask("DELETE", "/topics/orders", Origin=site.origin).status == 405
    assert site.submit("/topics/orders").status == 405


def test_the_audit_list_says_what_was_refused(site: Visitor, filled: Home) -> None:
    path = "/groups/billing/orders"
    with filled.topic("orders").consumer("billing") as consumer:
        next(iter(consumer))
        assert site.submit(f"{path}/reset", to="earliest", why="too early").status == 400
    assert site.submit("/groups/none/orders/delete", why="no such group").status == 400
    done = {one["why"]: one for one in site.get("/api/v1/home/actions").json["actions"]}
    assert "has active members" in done["too early"]["refused"]
    assert "has no group 'none'" in done["no such group"]["refused"]
    went(site, site.submit(f"{path}/reset", to="latest", why="at last"))
    assert site.get("/api/v1/home/actions").json["actions"][-1]["refused"] == ""
    assert "refused" in site.page("/home/actions")


def test_the_audit_list_is_read_from_its_end_in_parts(site: Visitor, filled: Home) -> None:
    for n in range(12):
        ledger.note(filled, "_home", "pause queue", f"time {n}")
    some = site.get("/api/v1/home/actions?limit=5").json["actions"]
    assert [one["why"] for one in some] == [f"time {n}" for n in range(7, 12)]
    before = site.get(f"/api/v1/home/actions?limit=5&before={some[0]['number']}").json["actions"]
    assert [one["why"] for one in before] == [f"time {n}" for n in range(2, 7)]
    page = site.page(f"/home/actions?before={before[0]['number']}")
    assert ("time 1<" in page, "time 2<" in page) == (True, False)


def test_the_overview_reads_only_the_end_of_the_audit_list(site: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    notes = ledger.notes

    def counted(home: Home, name: str, most: int | None = None, before: int | None = None) -> list[dict[str, Any]]:
        asked.append(most)
        return notes(home, name, most, before)

    monkeypatch.setattr(ledger, "notes", counted)
    for _ in range(3):
        assert "Last actions" in site.page("/")
    assert asked == [10]


def test_a_form_that_has_changed_since_its_preview_is_shown_again(site: Visitor, filled: Home) -> None:
    path, before = "/groups/billing/orders/reset", positions(site)
    preview = site.submit(path, to="earliest", preview="yes").body.decode()
    (seen,) = re.findall(r'name="seen" value="(\w+)"', preview)
    changed = site.submit(path, to="latest", why="x", seen=seen).body.decode()
    assert "Nothing was done: a field has changed" in changed
    assert re.search(r"[1-9] records will not be read", changed)
    assert positions(site) == before
    (seen,) = re.findall(r'name="seen" value="(\w+)"', changed)
    went(site, site.submit(path, to="latest", why="x", seen=seen))
    assert positions(site) == ["3", "2"]


def test_a_mark_shows_first_what_it_does_everywhere(site: Visitor, filled: Home) -> None:
    log = CommitLog(filled, "shop", partitions=2)
    log.refresh()
    columns = pa.record_batch({"command": pa.array(["truncate"])})
    log.take_in([make_rows("shop.orders", columns, [], op=Op.COMMAND, mode=Mode.SYNC)], 2)
    ends = {q: end for q, (_, end) in filled.topic("shop-log").ends().items()}
    for q, end in ends.items():
        operator.mark(filled, "shop", "file", q, end - 2, "before the truncate")
    path, fields = "/pipelines/shop/writers/file/mark", {"partition": 0, "offset": ends[0] - 1}
    shown = site.submit(path, preview="yes", **fields).body.decode()
    assert "A truncate is in every partition: the others move with this one." in shown
    assert "2 messages will not be delivered" in shown
    beyond = site.submit(path, preview="yes", partition=0, offset=99).body.decode()
    assert "has no message 0:99" in beyond
    went(site, site.submit(path, why="as shown", **fields))
    assert {q: mark.low for q, mark in operator.marks(filled, "shop", "file").items()} == {
        q: end - 1 for q, end in ends.items()
    }


@pytest.mark.parametrize(
    ("path", "left"), [("/events/consumers/teller/dead", 1), ("/streams/Person/groups/mailer/dead", 0)]
)
def test_a_dead_letter_of_a_handler_is_read_and_settled(site: Visitor, path: str, left: int) -> None:
    letters = site.get(f"/api/v1{path}").json["dead"]
    assert len(letters) == left + 1
    assert "cannot mail <script>" in letters[0]["error"]
    assert "&lt;script&gt;" in site.page(path)
    settle = f"{path}/{letters[0]['number']}/settle"
    assert f'href="{settle}"' in site.page(path)
    assert site.submit(settle).status == 400
    assert "is settled" in went(site, site.submit(settle, why="mailed by hand"))
    assert len(site.get(f"/api/v1{path}").json["dead"]) == left
    assert site.submit(settle, why="again").status == 400
    assert site.get(f"/api/v1{path}".replace("teller", "none").replace("mailer", "none")).status == 404
    assert "settle dead letter" in site.page("/home/actions")
