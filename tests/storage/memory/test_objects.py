"""The objects in memory keep the contract of objects."""

from __future__ import annotations

import pytest

from tailrace.errors import AlreadyThere, Closed
from tailrace.storage.memory.objects import MemoryObjects
from tailrace.storage.objects import Objects
from tailrace.testing.objectscontract import ObjectsContract


class TestMemoryObjects(ObjectsContract):
    @pytest.fixture
    def objects(self) -> Objects:
        return MemoryObjects()


def test_a_name_that_is_taken_is_refused_until_its_object_is_deleted():
    objects = MemoryObjects()
    objects.put("a", [b"1"])
    with pytest.raises(AlreadyThere):
        objects.put("a", [b"2"])
    objects.delete(["a"])
    objects.put("a", [b"3"])
    assert objects.items == {"a": b"3"}


def test_calls_after_close_are_refused():
    objects = MemoryObjects()
    objects.close()
    for call in (lambda: objects.put("a", []), lambda: objects.get("a"), lambda: objects.delete([])):
        with pytest.raises(Closed):
            call()
