"""The catalog: topics are made once, deleted whole, and their settings remembered."""

from __future__ import annotations

import time

import pytest

from tailrace.errors import AlreadyThere, BadName, BadSetting, UnknownTopic, nearest
from tailrace.home import Home
from tailrace.log import catalog
from tailrace.log.catalog import check_name, check_partitions
from tailrace.log.settings import TopicSettings
from tailrace.storage.calls import DeleteObjects, Write
from tailrace.storage.tables import Key
from tests.log.driving import TABLES, Driven, land, simulated, simulated_home

BAD = ["", "a/b", "a.b", "..", "a b", "a\n", "\x00", "é", "a" * 201, "a" * 300, "a$", "*", None, 5, b"a", 10**100]


@pytest.mark.parametrize("name", BAD, ids=lambda name: repr(name)[:20])
def test_names_that_cannot_be(name: object) -> None:
    home, _ = simulated_home()
    for ask in (home.topic, home.create_topic, home.delete_topic):
        with pytest.raises(BadName, match="cannot be a topic's name: 1 to 200 letters, digits, '-' and '_'") as refused:
            ask(name)  # type: ignore[arg-type]
        assert len(str(refused.value)) < 200
    assert home.topics() == []


@pytest.mark.parametrize("name", ["a", "A-b_9", "-", "_", "a" * 200, "0"])
def test_names_that_can_be(name: str) -> None:
    home, _ = simulated_home()
    assert check_name("topic", name) == name
    assert home.create_topic(name).name == name
    assert home.topics() == [name]


@pytest.mark.parametrize("count", [0, -1, 129, True, 1.0, "3", None])
def test_partition_counts_that_cannot_be(count: object) -> None:
    home, _ = simulated_home()
    with pytest.raises(BadSetting, match=r"a topic has 1 to 128 partitions, not .*; for more, use more topics"):
        check_partitions(count)  # type: ignore[arg-type]
    with pytest.raises(BadSetting):
        home.create_topic("t", count)  # type: ignore[arg-type]
    assert home.topics() == []


def test_a_topic_is_made_once() -> None:
    home, _ = simulated_home()
    made = home.create_topic("t", 3, compression="lz4")
    assert (made.partitions, made.settings.compression) == (3, "lz4")
    with pytest.raises(AlreadyThere, match="topic 't' exists already, with 3 partitions"):
        home.create_topic("t", 3)
    assert home.topic("t").id == home.topic("t", 3).id == made.id


def test_another_partition_count_is_refused() -> None:
    home, _ = simulated_home()
    home.create_topic("t", 8)
    with pytest.raises(BadSetting, match=r"topic .t. has 8 partitions, not 12; .*topic grow t 12"):
        home.topic("t", 12)
    with pytest.raises(BadSetting, match="1 to 128"):
        home.topic("t", 0)


def test_settings_are_checked_whether_the_topic_is_there_or_not() -> None:
    home, _ = simulated_home()
    for _ in range(2):
        with pytest.raises(BadSetting, match="did you mean 'compression'"):
            home.topic("t", 1, compresion="lz4")
        with pytest.raises(BadSetting, match="settings are given when a topic is made, with partitions"):
            home.topic("t", compression="lz4")
        home.topic("t", 1)


def test_a_topic_that_is_not_there() -> None:
    home, _ = simulated_home()
    with pytest.raises(UnknownTopic, match="there is no topic 'orders': this home has no topics yet; `tailrace topic"):
        home.topic("orders")
    home.create_topic("orders")
    with pytest.raises(
        UnknownTopic, match=r"no topic 'ordres'; did you mean 'orders'\? `tailrace topic create ordres`"
    ):
        home.topic("ordres")
    for n in range(500):
        home.create_topic(f"zz{n}")
    with pytest.raises(UnknownTopic) as unknown:
        home.topic("something-else")
    assert len(str(unknown.value)) < 500, "it does not list them all"


# --- made, and never twice
@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("when", ["lost", "landed", "late"])
def test_a_missing_answer_makes_one_topic(kept: str, when: str) -> None:
    store, _ = simulated(kept)
    steps = Driven(store, catalog.create("t", 2, {}, 5)).until(Write)
    if when == "landed":
        land(store, steps.call)
    sent = steps.lose()
    described = steps.run()
    if when == "late":
        land(store, sent)
    assert store.run(catalog.describe("t")) == described
    assert store.run(catalog.listing("$Topics")) == ["t"]


def test_of_many_who_make_the_same_topic_one_does() -> None:
    store, _ = simulated()
    crowd = [Driven(store, catalog.create("t", 1, {}, 5)) for _ in range(5)]
    while not all(one.done for one in crowd):
        for one in crowd:
            if not one.done:
                one.step()
    assert sum(one.error is None for one in crowd) == 1
    assert all(isinstance(one.error, AlreadyThere) for one in crowd if one.error)


def test_two_who_open_with_a_count_get_the_same_topic() -> None:
    home, _ = simulated_home()
    other = Home("memory:", home.store)
    describe = home.store.run

    def late(steps):  # type: ignore[no-untyped-def]
        if steps.__name__ == "create" and "t" not in other.topics():
            other.create_topic("t", 2)
        return describe(steps)

    object.__setattr__(home, "store", _Patched(home.store, late))
    assert home.topic("t", 2).id == other.topic("t").id


class _Patched:
    def __init__(self, store, run) -> None:  # type: ignore[no-untyped-def]
        self._store, self.run = store, run

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self._store, name)


def test_many_topics_are_listed_in_order() -> None:
    home, _ = simulated_home()
    names = [f"topic-{n:03d}" for n in range(300)]
    for name in reversed(names):
        home.create_topic(name)
    assert home.topics() == names


# --- deleted, and all that it held
@pytest.mark.parametrize("kept", TABLES)
def test_a_deleted_topic_is_gone_with_everything(kept: str) -> None:
    home, _ = simulated_home(kept)
    before = set(home.store.table.items)
    topic = home.create_topic("t", 2)
    keep = home.create_topic("keep")
    for n in range(300):
        topic.append([(b"%d" % n, b"x")])
    keep.append([(b"k", b"kept")])
    topic.configure(compression="lz4")
    home.delete_topic("t")
    assert home.topics() == ["keep"]
    assert not [name for name in home.store.objects.items if topic.id in name]
    left = {key for key in set(home.store.table.items) - before if topic.id in key.p or key.p == "$Deleted"}
    assert left == {Key(f"$Settings-{topic.id}", 0)}, "which keeps its id from being used again"
    assert [r.value for r in keep.records()] == [b"kept"]
    for ask in (lambda: list(topic.records()), lambda: topic.append([(b"a", b"b")]), topic.ends):
        with pytest.raises(UnknownTopic, match="topic 't' was deleted"):
            ask()
    with pytest.raises(UnknownTopic):
        home.delete_topic("t")


def test_a_topic_made_again_is_another() -> None:
    home, _ = simulated_home()
    old = home.create_topic("t")
    old.append([(b"a", b"old")])
    home.delete_topic("t")
    new = home.create_topic("t", 4)
    assert new.id != old.id
    assert list(new.records()) == []
    with pytest.raises(UnknownTopic):
        old.append([(b"a", b"lost")])
    with pytest.raises(UnknownTopic, match="'t' was deleted"):
        old.configure(compression="lz4")
    assert home.topic("t").settings == TopicSettings()
    assert old.partitions == 1


@pytest.mark.parametrize("kept", ["objects", "joined"])
def test_a_delete_cut_off_anywhere_is_finished_by_the_next(kept: str) -> None:
    for cut in range(40):
        home, _ = simulated_home(kept)
        before = set(home.store.table.items)
        topic = home.create_topic("t")
        topic.append([(b"a", b"1")])
        home.create_topic("other")

        def whole():  # type: ignore[no-untyped-def]
            yield from catalog.delete("t")
            yield from catalog.purge()

        steps = Driven(home.store, whole())
        for _ in range(cut):
            if not steps.done:
                steps.step()
        steps.steps.close()
        if "t" in home.topics():
            assert [r.value for r in topic.records()] == [b"1"], "still whole"
            home.delete_topic("t")
        home.delete_topic("other")
        left = {key.p[:9] for key in set(home.store.table.items) - before if key.p != "$Topics"}
        assert (left - {"$Settings"}, dict(home.store.objects.items)) == (set(), {}), cut
        if steps.done:
            return
    pytest.fail("forty calls, and no end")


@pytest.mark.parametrize("kept", TABLES)
def test_a_late_create_does_not_bring_a_deleted_topic_back(kept: str) -> None:
    home, _ = simulated_home(kept)
    steps = Driven(home.store, catalog.create("t", 2, {}, 5)).until(Write)
    sent = steps.lose()
    steps.run()
    home.delete_topic("t")
    land(home.store, sent)
    assert home.topics() == []
    with pytest.raises(UnknownTopic):
        home.topic("t")


def test_a_delete_without_answers_deletes_once() -> None:
    for when in ("lost", "landed", "late"):
        home, _ = simulated_home()
        home.create_topic("t")
        steps = Driven(home.store, catalog.delete("t")).until(Write)
        if when == "landed":
            land(home.store, steps.call)
        sent = steps.lose()
        steps.run()
        if when == "late":
            land(home.store, sent)
        assert home.topics() == []
        assert len(home.store.run(catalog.guard.read_all("$Deleted"))) == 1


def test_objects_that_cannot_be_deleted_now_are_later() -> None:
    home, _ = simulated_home("objects")
    topic = home.create_topic("t")
    topic.append([(b"a", b"1")])
    home.store.run(catalog.delete("t"))
    steps = Driven(home.store, catalog.purge()).until(DeleteObjects)
    steps.steps.close()
    assert home.store.objects.items
    assert home.store.run(catalog.purge()) == 1
    assert not home.store.objects.items


# --- settings
def test_settings_change_and_are_remembered() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t", 2, compression="lz4")
    assert topic.configure(retention_ms=1000).compression == "lz4"
    assert home.topic("t").settings == TopicSettings(compression="lz4", retention_ms=1000)
    topic.configure(retention_ms=None, max_record_bytes=10)
    versions = topic.history()
    assert [version for version, _, _ in versions] == [0, 1, 2]
    assert [s.retention_ms for _, _, s in versions] == [None, 1000, None]
    with pytest.raises(BadSetting, match="did you mean 'retention_ms'"):
        topic.configure(retention_m=1)
    assert len(topic.history()) == 3


@pytest.mark.parametrize("when", ["lost", "landed", "late"])
def test_a_change_without_an_answer_happens_once(when: str) -> None:
    store, _ = simulated("objects")
    store.run(catalog.create("t", 1, {}, 5))
    steps = Driven(store, catalog.change_settings("t", {"retention_ms": 7}, 9)).until(Write)
    if when == "landed":
        land(store, steps.call)
    sent = steps.lose()
    described = steps.run()
    if when == "late":
        land(store, sent)
    assert described.settings.retention_ms == 7
    assert len(store.run(catalog.history(described.id))) == 2


def test_two_changes_at_once_both_count() -> None:
    store, _ = simulated()
    described = store.run(catalog.create("t", 1, {}, 5))
    both = [
        Driven(store, catalog.change_settings("t", change, 9))
        for change in ({"retention_ms": 7}, {"compression": "lz4"})
    ]
    while not all(one.done for one in both):
        for one in both:
            if not one.done:
                one.step()
    assert store.run(catalog.describe("t")).settings == TopicSettings(retention_ms=7, compression="lz4")
    assert len(store.run(catalog.history(described.id))) == 3


def test_settings_that_a_topic_was_not_made_with() -> None:
    """To open a topic does not change it, and says so."""
    home, _ = simulated_home()
    home.topic("t", 1, compression="lz4")
    assert home.topic("t", 1, compression="lz4", compact=False).settings.compression == "lz4"
    with pytest.raises(
        BadSetting, match=r"has compression='lz4', not 'zstd'; .*`tailrace topic set t compression=zstd`"
    ):
        home.topic("t", 1, compression="zstd")
    assert home.topic("t").settings.compression == "lz4"


def test_making_a_topic_does_not_read_the_names_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = simulated_home()
    home.topic("a", partitions=1)
    table, spent = home.store.table, []
    for n in (1, 300):
        for i in range(n):
            home.topic(f"other-{n}-{i}", partitions=1)
        before = dict(table.calls)
        home.topic(f"new-{n}", partitions=2)
        spent.append({name: count - before.get(name, 0) for name, count in table.calls.items()})
    assert spent[0] == spent[1]
    assert spent[0].get("query", 0) == 0


def test_of_very_many_names_the_nearest_is_found_soon() -> None:
    names = [f"orders-{n}" for n in range(100_000)]
    began = time.process_time()
    assert nearest("ordesr", ["order", "customers"]) == "order"
    assert nearest("orders-77", names) is not None
    assert nearest("nothing like it", names) is None
    assert time.process_time() - began < 5
