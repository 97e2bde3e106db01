"""A power cut at any moment of a home's life: what was acknowledged is read, in order, once; and the home goes on.

That the images would show a bug is shown by switching three in.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import tailrace
from tailrace.coordination import guard
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.attempt import roll
from tailrace.storage.tables import LAST
from tests.faults.images import Image, images, record
from tests.faults.recorder import Recorder

LARGE = 70_000
"""More than an item takes: such a chunk is an object."""


class Sent(NamedTuple):
    """A record that was attempted; acknowledged, with the offset that was answered."""

    topic: str
    partition: int
    value: bytes
    offset: int = -1


def value(who: str, n: int) -> bytes:
    """The record of a producer; every third one is large."""
    text = f"{who}.{n}.".encode()
    return text + b"x" * (LARGE if n % 3 == 0 else 20)


def produce(recorder: Recorder, topic: Topic, who: str, count: int) -> None:
    with topic.producer() as out:
        for n in range(count):
            q, data = n % topic.partitions, value(who, n)
            recorder.attempt(Sent(topic.name, q, data))
            ack = out.send(None, data, partition=q)
            if n % 2:
                recorder.acknowledge(Sent(topic.name, q, data, ack.result(30)))


def transact(recorder: Recorder, home: Home, who: str, count: int) -> None:
    for n in range(count):
        data = value(who, n)
        with home.transaction("one", "two") as t:
            for name in ("one", "two"):
                recorder.attempt(Sent(name, 0, data))
                t.send(None, data, topic=name, partition=0)
        recorder.acknowledge(("both", data))


def number(recorder: Recorder, topic: Topic, count: int) -> None:
    out = topic.named_producer("loader")
    for n in range(out.last, out.last + count):
        data = value("loader", n)
        recorder.attempt(Sent(topic.name, 1, data))
        spans = out.send_batch([(None, data)], partition=1)
        assert spans is not None
        recorder.acknowledge(Sent(topic.name, 1, data, spans[0].offset))


def tidy(home: Home, topic: Topic) -> None:
    """Everything that upkeep does."""
    run, log = home.store.run, topic.log
    run(roll(log, run(log.head())))
    pages = [Page.of(item) for item in run(guard.read_all(heads.head_key(log.id).p, 0, LAST - 1))]
    run(merge(log, pages[-2:]))
    run(clean(log))
    run(raise_floor(log, {q: end // 4 for q, end in pages[-1].end.items()}))
    run(drop_pages(log))
    run(clean(log))


def life(recorder: Recorder, *, each: int = 8, **switches: bool) -> None:
    """Threads of all kinds, upkeep between them, and the same again after the home was closed and opened."""
    for round in range(2):
        home = Home(str(recorder.folder), recorder.store(**switches))
        one, two = home.topic("one", 2), home.topic("two", 2)
        recorder.acknowledge("topics")
        jobs = [
            threading.Thread(target=produce, args=(recorder, one, f"a{round}", each)),
            threading.Thread(target=produce, args=(recorder, two, f"b{round}", each)),
            threading.Thread(target=transact, args=(recorder, home, f"both{round}", each // 2)),
            threading.Thread(target=number, args=(recorder, one, each // 2)),
        ]
        for job in jobs:
            job.start()
        jobs[0].join()
        tidy(home, one)
        for job in jobs:
            job.join()
        tidy(home, two)
        home.close()


# --- after the cut
def problem(image: Image) -> str | None:
    """What is wrong after a power cut, if anything."""
    try:
        with tailrace.open(image.folder) as home:
            if not home.topics():
                return "the topics are gone" if "topics" in image.acknowledged else None
            return wrong(image.acknowledged, image.attempted, home) or goes_on(home)
    except Exception as error:
        return repr(error)


def wrong(acknowledged: frozenset[Hashable], attempted: frozenset[Hashable], home: Home) -> str | None:
    found: dict[tuple[str, int, int], bytes] = {}
    floors = {}
    for name in home.topics():
        topic = home.topic(name)
        floors |= {(name, q): floor for q, (floor, _) in topic.ends().items()}
        for one in topic.records():
            found[name, one.partition, one.offset] = one.value or b""
    for note in acknowledged:
        if isinstance(note, Sent) and note.offset >= floors[note.topic, note.partition]:
            if found.get((note.topic, note.partition, note.offset)) != note.value:
                return f"acknowledged and not there: {note.topic} {note.partition} {note.offset} {note.value[:10]!r}"
        elif isinstance(note, tuple) and note[0] == "both" and not both(found, floors, note[1]):
            return f"a transaction acknowledged and not there: {note[1][:10]!r}"
    return strange(attempted, found) or disorder(found) or halves(attempted, found, floors)


def both(found: dict[tuple[str, int, int], bytes], floors: dict[tuple[str, int], int], data: bytes) -> bool:
    return all(floors[name, 0] > 0 or data in _of(found, name, 0) for name in ("one", "two"))


def _of(found: dict[tuple[str, int, int], bytes], name: str, q: int) -> list[bytes]:
    return [data for (n, p, _), data in sorted(found.items()) if (n, p) == (name, q)]


def strange(attempted: frozenset[Hashable], found: dict[tuple[str, int, int], bytes]) -> str | None:
    for (name, q, offset), data in found.items():
        if Sent(name, q, data) not in attempted:
            return f"there, and nobody asked for it: {name} {q} {offset} {data[:10]!r}"
    return None


def disorder(found: dict[tuple[str, int, int], bytes]) -> str | None:
    last: dict[tuple[str, int, bytes], int] = {}
    for (name, q, offset), data in sorted(found.items()):
        who, n, _ = data.split(b".", 2)
        if last.get((name, q, who), -1) >= int(n):
            return f"twice or out of order: {name} {q} {offset} {data[:10]!r}"
        last[name, q, who] = int(n)
    return None


def halves(
    attempted: frozenset[Hashable], found: dict[tuple[str, int, int], bytes], floors: dict[tuple[str, int], int]
) -> str | None:
    if floors["one", 0] or floors.get(("two", 0), 0):
        return None
    one, two = ({d for d in _of(found, name, 0) if d.startswith(b"both")} for name in ("one", "two"))
    return f"half a transaction: {[d[:10] for d in one ^ two]}" if one ^ two else None


def goes_on(home: Home) -> str | None:
    """Upkeep and another producer find a home that works."""
    topic = home.topic("one", 2)
    before = sum(1 for _ in topic.records())
    for _ in range(2):
        home.store.run(clean(topic.log))
    if sum(1 for _ in topic.records()) != before:
        return "cleaning has removed something that is referred to"
    with topic.producer() as out:
        offset = out.send(b"k", b"after.0.", partition=0).result(30)
    return None if next(topic.records(0, offset)).value == b"after.0." else "it does not go on"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and new pages happen often."""
    monkeypatch.setattr("tailrace.storage.sqlite.checkpointer.CHECKPOINT_BYTES", 256 * 1024)
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_home_acknowledged_survives_any_power_cut(tmp_path: Path, seed: int) -> None:
    trace = record(life, tmp_path / "home")
    seen = 0
    for image in images(trace, seed, cuts=40, each=2):
        what = problem(image)
        assert what is None, f"cut after {image.cut} of {len(trace)}: {what}"
        seen += len(image.acknowledged) > 10
    assert seen > 20
    assert any(op.what == "delete" and op.path.startswith("objects/") for op in trace), "nothing was cleaned"


BUGS = {
    "no sync of commits": "not there|are gone|is damaged",
    "no sync of names": "is gone|not there",
    "no sync of objects": "checksum differs|cut to|not there",
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_images_show_a_missing_sync(tmp_path: Path, bug: str) -> None:
    def workload(recorder: Recorder) -> None:
        if bug == "no sync of objects":
            recorder.files.skip.add("sync")
        life(recorder, durable=bug != "no sync of commits", sync_names=bug != "no sync of names")

    trace = record(workload, tmp_path / "home")
    with closing(images(trace, 1, cuts=40, each=2)) as some:
        shown = any(re.search(BUGS[bug], str(problem(image))) for image in some)
    assert shown


@pytest.mark.soak
def test_many_power_cuts_of_a_home(tmp_path: Path) -> None:
    for seed in range(10):
        trace = record(life, tmp_path / str(seed))
        for image in images(trace, seed, cuts=len(trace), each=2):
            what = problem(image)
            assert what is None, f"seed {seed}, cut after {image.cut} of {len(trace)}: {what}"
