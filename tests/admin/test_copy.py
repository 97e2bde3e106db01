"""Copying homes: any to any, cut off anywhere, with faults, and beside writers."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.admin import target
from tailrace.admin.copy import _Copy, copy
from tailrace.errors import AlreadyThere, Fenced, HomeError
from tailrace.events.event import Event
from tailrace.home import FORMAT, Home
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.upkeep.merge import merge
from tailrace.log.write.attempt import roll
from tailrace.storage.aws.buckets import open_bucket
from tailrace.storage.calls import Call, Store
from tailrace.storage.tables import Delete
from tailrace.testing import Faults, SimulatedObjects, SimulatedTable
from tests.admin.test_scrub import BIG, some_of_all
from tests.cli.runs import PROGRAM
from tests.log.homes import fill, group_of
from tests.servers import aws
from tests.servers.process import Server


def memory(**faults: float) -> Store:
    plan = Faults(7, **faults) if faults else None
    return Store(SimulatedTable(faults=plan), SimulatedObjects(reuse=True), sleep=lambda _: None)


def contents(home: Home) -> dict[str, Any]:
    """All that people see of a home."""
    out: dict[str, Any] = {}
    for name in home.topics():
        topic = home.topic(name)
        out[name] = (topic.settings, topic.ends(), sorted(topic.records()))
    out["groups"] = [
        (g, t, {q: i["position"] for q, i in home.store.run(groups.shards(group_of(home.topic(t), g))).items()})
        for g, t, _ in home.store.run(groups.groups())
    ]
    for stream in ("Cart-1", "Cart-2"):
        out[stream] = [(e.index, e.type, e.data) for e in home.events().stream(stream).read()]
    out["producer"] = home.topic("one").named_producer("loader").last if "one" in out else 0
    return out


def merged(home: Home) -> None:
    """Make the topic's pages more than one, and merge some."""
    topic = home.topic("two")
    for _ in range(2):
        topic.append([(b"more", BIG)])
        home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    pages = [heads.Page.of(i) for i in home.store.table.query(heads.head_key(topic.id).p, 1, 2).items]
    assert home.store.run(merge(topic.log, pages))


def test_from_disk_to_memory_and_back(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        merged(home)
        right = contents(home)
        done = home.copy("memory://copied")
        assert (done.topics, done.streams, done.report.damages) == (2, 2, [])
        assert done.report.orphans == done.report.pending == 0, "only what is referred to is copied"
    with tailrace.open("memory://copied") as there:
        assert contents(there) == right
        assert there.copy(tmp_path / "b").report.clean
    with tailrace.open(tmp_path / "b") as back:
        assert contents(back) == right
        back.topic("two").append([(b"k", b"it goes on")])
        assert back.topic("one").named_producer("loader").send_batch([(b"k", b"v")])
        assert back.id not in (home.id, there.id)


def test_large_items(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        events = home.events(max_events=1, compression="none")
        for n in range(30):
            events.stream("Cart-1").append([Event("Added", bytes(300_000))], expected=n)
        right = contents(home)
        assert home.copy(tmp_path / "b").report.clean
        with tailrace.open(tmp_path / "b") as copied:
            assert contents(copied) == right


def test_a_target_that_holds_something_is_refused(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home, tailrace.open(tmp_path / "b") as other:
        some_of_all(home)
        other.create_topic("mine")
        with pytest.raises(AlreadyThere, match="not empty"):
            home.copy(tmp_path / "b")
        assert other.topics() == ["mine"]
        home.copy(tmp_path / "c")
        with pytest.raises(AlreadyThere, match="not empty"):
            home.copy(tmp_path / "c")


def test_an_empty_home_may_be_the_target(tmp_path: Path) -> None:
    tailrace.open(tmp_path / "b").close()
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        home.copy(tmp_path / "b")


def test_a_home_is_not_copied_onto_itself(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        with pytest.raises(AlreadyThere, match="the very home"):
            home.copy(tmp_path / "a")
        tailrace.open(tmp_path / "a").close()


def test_a_topic_without_its_head_is_named(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        home.store.table.write(Delete(heads.head_key(home.topic("two").id)))
        done = home.copy(tmp_path / "b")
        assert [(d.kind, d.topic) for d in done.report.damages] == [("head", "two")]


class Cut(BaseException):
    """The process is gone."""


class Dying:
    """A store that does so many calls and no more; a put may be half done then."""

    def __init__(self, store: Store, calls: int) -> None:
        self.store, self.left = store, calls
        self.table, self.objects, self.clock = store.table, store.objects, store.clock
        self._lock = threading.Lock()

    def answer(self, call: Call) -> Any:
        with self._lock:
            self.left -= 1
            if self.left < 0:
                if type(call).__name__ == "PutObject" and self.left == -1:
                    self.objects.put(call.name, [b"".join(map(bytes, call.parts))[:100]])
                raise Cut
        return self.store.answer(call)

    def check(self) -> None:
        """It was not forked."""

    def run(self, steps: Any) -> Any:
        return Store.run(self, steps)  # type: ignore[arg-type]


def test_cut_off_after_any_call(tmp_path: Path) -> None:
    source = Home("memory://", memory())
    some_of_all(source)
    merged(source)
    right = contents(source)
    calls, cut_off = 0, True
    while cut_off:
        target = memory()
        for life in range(2):
            try:
                copy(source.store, Dying(target, calls + 3 * life), source.id, "there")  # type: ignore[arg-type]
                cut_off = False
                break
            except Cut:
                if target.table.items:
                    with pytest.raises(HomeError, match="not complete"):
                        Home("there", target)
        done = copy(source.store, target, source.id, "there") if cut_off else None
        assert done is None or done.report.clean
        assert contents(Home("there", target)) == right, f"cut off after {calls} calls"
        calls = calls + 1 if calls < 8 else calls * 5 // 4
    assert calls > 30


class Overtaken(Dying):
    """A store in which another begins after so many calls, and is done before the next."""

    def __init__(self, store: Store, calls: int, other: Callable[[], object]) -> None:
        super().__init__(store, calls)
        self.other = other

    def answer(self, call: Call) -> Any:
        with self._lock:
            self.left -= 1
            if self.left == -1:
                self.other()
        return self.store.answer(call)


def test_a_second_copy_takes_over_and_the_first_changes_nothing_more() -> None:
    source = Home("memory://", memory())
    some_of_all(source)
    calls, overtaken = 3, True
    while overtaken:
        target = memory()

        def other(target: Store = target) -> None:
            copy(source.store, target, source.id, "there")
            Home("there", target).topic("one").append([(b"k", b"appended to the copy")])

        first = Overtaken(target, calls, other)
        try:
            copy(source.store, first, source.id, "there")  # type: ignore[arg-type]
        except (Fenced, AlreadyThere):
            there = Home("there", target)
            assert there.scrub().clean, f"overtaken after {calls} calls"
            assert [r.value for r in there.topic("one").records()].count(b"appended to the copy") == 1
        overtaken = first.left < 0
        calls = calls + 1 if calls < 20 else calls * 5 // 4
    assert calls > 30


def test_with_faults() -> None:
    source = Home("memory://", memory())
    some_of_all(source)
    right = contents(source)
    target = memory(throttled=0.1, unread=0.1, landed=0.1, lost=0.1)
    assert copy(source.store, target, source.id, "there").report.clean
    target.table.faults = None
    assert contents(Home("there", target)) == right


def test_an_object_that_a_power_cut_left_as_zeros(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        right = contents(home)
        target = memory()
        with pytest.raises(Cut):
            copy(home.store, Dying(target, 25), home.id, "there")  # type: ignore[arg-type]
        name = next(iter(target.objects.items), None)
        if name is None:
            (first, *_) = home.store.objects.list("topics/")
            name = first.name
        target.objects.items[name] = bytes(len(home.store.objects.get(name)))
        assert copy(home.store, target, home.id, "there").report.clean
        assert contents(Home("there", target)) == right


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_beside_writers_nothing_is_torn(tmp_path: Path, kind: str) -> None:
    url = tmp_path / "a" if kind == "disk" else "memory://"
    with tailrace.open(url) as home:
        pair = [home.create_topic("a", 2), home.create_topic("b")]
        home.store.run(groups.make(group_of(pair[0]), "earliest"))
        numbered = pair[1].named_producer("n") if kind == "disk" else None
        stop = threading.Event()

        def write() -> None:
            n = 0
            while not stop.is_set():
                with home.transaction(*pair) as t:
                    t.send(b"%d" % n, BIG, topic="a", partition=n % 2)
                    t.send(b"%d" % n, b"x", topic="b")
                if numbered:
                    numbered.send_batch([(b"numbered", b"%d" % n)])
                n += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for n in range(3):
                target = memory()
                assert copy(home.store, target, home.id, "there").report.clean
                there = Home("there", target)
                a, b = ([r.key for r in there.topic(name).records()] for name in "ab")
                for q in range(2):
                    keys = [int(r.key) for r in there.topic("a").records(q)]
                    assert keys == list(range(q, 2 * len(keys), 2))
                if kind == "disk":
                    assert sorted(map(int, a)) == sorted(int(k) for k in b if k != b"numbered"), "of one moment"
                    assert there.topic("b").named_producer("n").last == b.count(b"numbered")
                fill(pair[0], 0, n)
        finally:
            stop.set()
            writer.join()


# --- the cloud
@pytest.fixture
def cloud(dynoxide: Server, seaweedfs: Server) -> Iterator[Store]:
    with aws.table(dynoxide) as table:
        bucket = aws.new_bucket(seaweedfs)
        objects = open_bucket(f"s3://{bucket}/home", session=aws.session_of(seaweedfs), endpoint=seaweedfs.url)
        yield Store(table, objects)
        objects.close()


@pytest.mark.server
def test_to_the_cloud_and_back(cloud: Store, tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        merged(home)
        right = contents(home)
        assert copy(home.store, cloud, home.id, "s3://there").report.clean
    there = Home("s3://there", cloud)
    assert contents(there) == right
    done = there.copy(tmp_path / "b")
    assert done.report.clean
    with tailrace.open(tmp_path / "b") as back:
        assert contents(back) == right


def test_killed_again_and_again(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "a") as home:
        some_of_all(home)
        topic = home.topic("two")
        for _ in range(60):
            topic.append([(b"more", BIG * 4)])
        right = contents(home)
    command = [PROGRAM, "home", "copy", tmp_path / "a", tmp_path / "b", "--json"]
    deaths = 0
    for delay in (0.4, 0.6, 0.8, 1.0):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        deaths += process.poll() is None
        process.kill()
        process.wait()
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0 or b"not empty" in done.stderr, done.stderr
    assert deaths
    with tailrace.open(tmp_path / "b") as copied:
        assert contents(copied) == right
        assert copied.scrub().clean


def test_a_topic_that_grows_while_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with tailrace.open("memory://") as home:
        topic = home.topic("orders", partitions=2)
        topic.append([(b"%d" % n, b"old") for n in range(9)])
        heads_of = _Copy._heads

        def grown(self: _Copy, *given: Any) -> Any:
            topic.grow(5)
            topic.append([(b"%d" % n, b"new") for n in range(9)])
            return heads_of(self, *given)

        monkeypatch.setattr(_Copy, "_heads", grown)
        home.copy("memory://grown")
        with tailrace.open("memory://grown") as there:
            assert there.topic("orders").partitions == 5
            assert sorted(there.topic("orders").records()) == sorted(topic.records())


def test_a_copy_has_the_format_of_homes() -> None:
    assert target.FORMAT == FORMAT, "admin may not import home, so it names the format itself"
