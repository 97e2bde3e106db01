"""The carrier does what each call asks for, as `Store` does, and counts it."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.storage import calls
from tailrace.storage.calls import Call, Store
from tailrace.storage.tables import Absent, Add, Check, Delete, Key, Put, Update
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tailrace.testing.simulated_calls import SimulatedCalls, parts

KEY = Key("k", 1)
CALLS: list[Call] = [
    calls.Write((Put(KEY, {"n": 1, "l": (1, 2)}, (Absent(),)), Check(Key("k", 2), (Absent(),)))),
    calls.Write((Put(KEY, {}, (Absent(),)),)),
    calls.Write((Update(KEY, (Add("n", 1),)),)),
    calls.Get(KEY),
    calls.Get(Key("k", 9)),
    calls.Query("k", 0, 5, True, 1),
    calls.PutObject("o/1", [b"ab", b"cd"]),
    calls.PutObject("o/1", [b"again"]),
    calls.GetObject("o/1"),
    calls.GetObject("o/1", ((1, 2), (3, 9))),
    calls.ListObjects("o/"),
    calls.DeleteObjects(("o/1", "o/2")),
    calls.GetObject("o/1"),
    calls.Write((Delete(KEY),)),
    calls.Write((Put(Key(""), {}, ()),)),
]


def answers(carry) -> list[object]:
    out: list[object] = []
    for call in CALLS:
        try:
            out.append(carry(call))
        except TailraceError as error:
            out.append((type(error), str(error), getattr(error, "item", None)))
    return out


@pytest.mark.parametrize("several", [True, False])
def test_a_call_is_answered_as_a_store_answers_it(several):
    carrier = SimulatedCalls(SimulatedTable(answers=several), SimulatedObjects(), ManualClock())
    store = Store(SimulatedTable(answers=several), SimulatedObjects())
    assert answers(carrier.answer) == answers(store.answer)
    assert carrier.table.calls["write"] == 5
    assert carrier.table.calls["get"] == store.table.calls["get"] == 2
    assert carrier.objects.calls == store.objects.calls == {"put": 2, "get": 3, "list": 1, "delete": 1}


def test_time_passes_with_calls_and_pauses():
    carrier = SimulatedCalls(SimulatedTable(), SimulatedObjects(), ManualClock())
    carrier.answer(calls.Pause(0))
    carrier.answer(calls.Pause(3))
    assert carrier.answer(calls.Now()) == pytest.approx(0.01 + 0.08 + 0.003)


def test_a_request_in_flight_is_in_parts():
    assert list(parts(calls.DeleteObjects(("a", "b")))) == [calls.DeleteObjects(("a",)), calls.DeleteObjects(("b",))]
    assert list(parts(calls.PutObject("a", [b"1", b"2"]))) == [calls.PutObject("a", (b"12",))]
    assert list(parts(calls.Get(KEY))) == []
