"""Faults come from the seed, do what they say, and are counted."""

from __future__ import annotations

import pytest

from tailrace.errors import BadSetting, Conflict, Throttled, TimedOut
from tailrace.storage.tables import Absent, Add, Key, Put, Update
from tailrace.testing import Faults, SimulatedObjects, SimulatedTable

KEY = Key("k")
ONE_MORE = Update(KEY, (Add("n", 1),))


def table(**faults: float) -> SimulatedTable:
    made = SimulatedTable()
    made.write(Put(KEY, {"n": 0}, (Absent(),)))
    made.faults = Faults(7, **faults)  # type: ignore[arg-type]
    return made


def stored(made: SimulatedTable) -> int:
    return int(made.items[KEY]["n"])


@pytest.mark.parametrize(
    ("kind", "error", "after"), [("throttled", Throttled, 0), ("conflicting", Throttled, 0), ("lost", TimedOut, 0)]
)
def test_a_write_that_does_not_happen(kind, error, after):
    made = table(**{kind: 1.0})
    with pytest.raises(error):
        made.write(ONE_MORE)
    made.faults.settle()
    assert stored(made) == after
    assert made.faults.counts[kind] == 1


def test_a_write_that_happens_without_an_answer():
    made = table(landed=1.0)
    with pytest.raises(TimedOut):
        made.write(ONE_MORE)
    assert stored(made) == 1


def test_a_write_that_happens_after_the_look():
    made = table(late=1.0, delay=3)
    with pytest.raises(TimedOut):
        made.write(ONE_MORE)
    assert stored(made) == 0
    seen = [made.get(KEY)["n"] for _ in range(3)]
    assert seen == sorted(seen)
    assert seen[-1] == stored(made) == 1


def test_what_is_late_can_be_made_to_land():
    made = table(late=1.0)
    with pytest.raises(TimedOut):
        made.write(ONE_MORE)
    made.faults.settle()
    assert stored(made) == 1
    made.faults.settle()
    assert stored(made) == 1


def test_a_late_write_meets_its_condition_when_it_lands():
    made = table(late=1.0)
    with pytest.raises(TimedOut):
        made.write(Put(KEY, {"n": 9}, (Absent(),)))
    made.faults.settle()
    assert stored(made) == 0


def test_reads_go_wrong_too():
    with pytest.raises(TimedOut):
        table(unread=1.0).get(KEY)
    with pytest.raises(Throttled):
        table(throttled=1.0).query("k")


def test_a_conflict_is_no_fault():
    with pytest.raises(Conflict):
        table(landed=0.0).write(Put(KEY, {}, (Absent(),)))


def test_objects_go_wrong_too():
    objects = SimulatedObjects(faults=Faults(1, landed=1.0))
    with pytest.raises(TimedOut):
        objects.put("a", [b"1"])
    assert objects.items == {"a": b"1"}
    with pytest.raises(TimedOut):
        objects.delete(["a"])
    assert objects.items == {}


def outcomes(seed: int) -> list[str]:
    made = table()
    made.faults = Faults(seed, throttled=0.2, landed=0.2, lost=0.2, late=0.2)
    out = []
    for _ in range(50):
        try:
            made.write(ONE_MORE)
            out.append("written")
        except (Throttled, TimedOut) as error:
            out.append(f"{type(error).__name__} {stored(made)}")
    return out


def test_the_same_seed_gives_the_same_faults():
    assert outcomes(3) == outcomes(3)
    assert outcomes(3) != outcomes(4)


def test_an_unknown_fault_is_an_error_with_the_nearest_name():
    with pytest.raises(BadSetting, match="throttled"):
        Faults(0, trottled=0.1)
