"""The simulated objects keep the contract; a name is used once; calls are counted."""

from __future__ import annotations

import pytest

from tailrace.errors import AlreadyThere, Closed
from tailrace.storage.objects import Objects
from tailrace.testing import SimulatedObjects
from tailrace.testing.objectscontract import ObjectsContract


class TestSimulatedObjects(ObjectsContract):
    @pytest.fixture
    def objects(self) -> Objects:
        return SimulatedObjects()


def test_a_name_is_used_once_even_after_a_delete():
    objects = SimulatedObjects()
    objects.put("a", [b"1"])
    with pytest.raises(AlreadyThere):
        objects.put("a", [b"2"])
    objects.delete(["a"])
    with pytest.raises(AlreadyThere):
        objects.put("a", [b"3"])
    assert objects.items == {}


def test_calls_are_counted_by_kind():
    objects = SimulatedObjects()
    objects.put("a/b", [b"1"])
    objects.get("a/b")
    objects.get_ranges("a/b", [(0, 1)])
    list(objects.list("a/"))
    objects.delete(["a/b"])
    assert objects.calls == {"put": 1, "get": 2, "list": 1, "delete": 1}
    assert objects.version == 2


def test_calls_after_close_are_refused():
    objects = SimulatedObjects()
    objects.close()
    for call in (lambda: objects.put("a", []), lambda: objects.get("a"), lambda: objects.delete([])):
        with pytest.raises(Closed):
            call()
