"""Named producers: numbered batches are stored once, by whichever life they are sent."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.errors import BadInput, BadName, Fenced, OutcomeUnknown, TimedOut, Unavailable
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.attempt import roll
from tailrace.log.write.named_producer import NamedProducer
from tailrace.testing import ManualClock
from tests.log.driving import TABLES, simulated_home


def values(topic: Topic) -> list[bytes | None]:
    return [record.value for record in topic.records()]


def made(kept: str = "joined") -> tuple[Home, Topic, ManualClock]:
    home, clock = simulated_home(kept)
    return home, home.create_topic("t"), clock


class Lossy:
    """Makes the table's writes of several actions fail, having happened or not."""

    def __init__(self, home: Home) -> None:
        self.table: Any = home.store.table
        self._write = self.table.write
        self.plan: list[str] = []
        self.late: list[tuple[Any, ...]] = []
        self.table.write = self

    def __call__(self, *actions: Any) -> Any:
        what = self.plan.pop(0) if self.plan and len(actions) > 1 else ""
        if what == "late":
            self.late.append(actions)
        if what == "landed":
            self._write(*actions)
        if what == "away":
            raise Unavailable("no route")
        if what:
            raise TimedOut("sent, no answer")
        return self._write(*actions)

    def land(self) -> None:
        for actions in self.late:
            try:
                self._write(*actions)
            except Exception:
                continue


@pytest.mark.parametrize("kept", TABLES)
def test_batches_are_numbered_and_found(kept: str) -> None:
    _, topic, _ = made(kept)
    out = topic.named_producer("loader")
    assert out.last == 0
    assert out.send_batch([(b"a", b"1"), (b"b", b"2")]) == [(0, 0, 2)]
    assert out.send_batch([(b"a", b"3")], number=2) == [(0, 2, 1)]
    assert out.last == 2
    assert values(topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("kept", TABLES)
def test_a_batch_sent_again_is_stored_once(kept: str) -> None:
    _, topic, _ = made(kept)
    out = topic.named_producer("loader")
    for n in (1, 2, 3):
        out.send_batch([(b"a", b"%d" % n)])
    again = topic.named_producer("loader")
    assert again.last == 3
    assert again.send_batch([(b"a", b"3")], number=3) == [(0, 2, 1)], "the last: where it is"
    assert again.send_batch([(b"a", b"2")], number=2) is None, "one before: it is there"
    assert again.send_batch([(b"a", b"4")]) == [(0, 3, 1)]
    assert values(topic) == [b"1", b"2", b"3", b"4"]


def test_a_new_life_fences_the_old_one() -> None:
    _, topic, _ = made()
    old = topic.named_producer("loader")
    old.send_batch([(b"a", b"1")])
    new = topic.named_producer("loader")
    with pytest.raises(Fenced, match="another life of the producer 'loader' has started"):
        old.send_batch([(b"a", b"2")])
    new.send_batch([(b"a", b"3")])
    assert values(topic) == [b"1", b"3"]


def test_two_topics_know_the_same_name_apart() -> None:
    home, topic, _ = made()
    other = home.create_topic("other")
    one, two = topic.named_producer("loader"), other.named_producer("loader")
    assert one.send_batch([(b"a", b"1")]) == [(0, 0, 1)]
    assert two.send_batch([(b"a", b"2")]) == [(0, 0, 1)]
    assert one.send_batch([(b"a", b"3")]) == [(0, 1, 1)]
    assert (values(topic), values(other)) == ([b"1", b"3"], [b"2"])


def test_a_topic_made_again_knows_no_batches() -> None:
    home, topic, _ = made()
    topic.named_producer("loader").send_batch([(b"a", b"1")])
    home.delete_topic("t")
    again = home.create_topic("t")
    out = again.named_producer("loader")
    assert out.last == 0
    out.send_batch([(b"a", b"2")])
    assert values(again) == [b"2"]


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("plan", [["lost"], ["landed"], ["late"], ["late", "late", "landed"], ["lost", "late", "lost"]])
def test_missing_answers(kept: str, plan: list[str]) -> None:
    home, topic, _ = made(kept)
    out = topic.named_producer("loader")
    lossy = Lossy(home)
    lossy.plan = list(plan)
    assert out.send_batch([(b"a", b"1")]) == [(0, 0, 1)]
    assert out.send_batch([(b"a", b"2")]) == [(0, 1, 1)]
    lossy.land()
    assert values(topic) == [b"1", b"2"]


@pytest.mark.parametrize("landed", [False, True])
def test_after_a_failure_the_next_batch_is_not_taken_for_the_last(landed: bool) -> None:
    """Batch 1 may come yet.  Another batch under the same number would be lost in silence."""
    home, topic, clock = made()
    out = topic.named_producer("loader")
    lossy = Lossy(home)
    lossy.plan = ["late"] + ["away"] * 1000
    sleep = home.store.sleep
    home.store.sleep = lambda seconds: clock.move(30)
    with pytest.raises(Unavailable):
        out.send_batch([(b"a", b"1")])
    lossy.plan, home.store.sleep = [], sleep
    if landed:
        lossy.land()
    with pytest.raises(OutcomeUnknown, match=r"batch 1 of the producer 'loader'.*send it again with number=1"):
        out.send_batch([(b"a", b"2")])
    assert out.send_batch([(b"a", b"1")], number=1) == [(0, 0, 1)]
    out.send_batch([(b"a", b"2")])
    lossy.land()
    assert values(topic) == [b"1", b"2"]


def test_an_answer_that_never_comes_is_waited_for_a_minute() -> None:
    home, topic, clock = made()
    out = topic.named_producer("loader")
    lossy = Lossy(home)
    lossy.plan = ["lost"] * 10_000
    wait = home.store.clock
    home.store.clock = lambda: (clock.move(1), wait())[1]
    with pytest.raises(OutcomeUnknown):
        out.send_batch([(b"a", b"1")])


def test_a_batch_whose_page_is_gone_is_known_to_be_stored() -> None:
    home, topic, _ = made("objects")
    out = topic.named_producer("loader")
    out.send_batch([(b"a", b"1")])
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    home.store.run(raise_floor(topic.log, {0: 1}))
    assert home.store.run(drop_pages(topic.log)) == 1
    assert topic.named_producer("loader").send_batch([(b"a", b"1")], number=1) is None
    assert topic.ends() == {0: (1, 1)}


def test_what_is_refused() -> None:
    _, topic, _ = made()
    with pytest.raises(BadName, match="cannot be a producer's name"):
        topic.named_producer("a/b")
    out = topic.named_producer("loader")
    with pytest.raises(BadInput, match="at least one record"):
        out.send_batch([])
    for number in (0, -1, True, "1", 1.0):
        with pytest.raises(BadInput, match="batches are numbered from 1"):
            out.send_batch([(b"a", b"1")], number=number)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="has sent batch 0; the next is 1, not 3"):
        out.send_batch([(b"a", b"1")], number=3)
    assert out.send_batch([(b"a", b"1")]) == [(0, 0, 1)], "a refusal leaves no doubt"
    assert values(topic) == [b"1"]


def test_threads_that_share_a_life() -> None:
    _, topic, _ = made()
    out: NamedProducer = topic.named_producer("loader")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            spans = list(pool.map(lambda n: out.send_batch([(b"a", b"%d" % n)]), range(100)))
    finally:
        sys.setswitchinterval(before)
    assert sorted(span[0].offset for span in spans if span) == list(range(100))
    found = values(topic)
    assert sorted(found) == sorted(b"%d" % n for n in range(100))
    assert all(span and found[span[0].offset] == b"%d" % n for n, span in enumerate(spans))
