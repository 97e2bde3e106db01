"""ObjectsContract: the tests that every object backend passes, ours and yours.

Subclass it in a test module and define one fixture, `objects`, that yields a handle on `Objects`:

    class TestMyObjects(ObjectsContract):
        @pytest.fixture
        def objects(self, tmp_path):
            return MyObjects(tmp_path)

Tests may share the storage that the handle opens: each test uses its own folder.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tailrace.errors import ObjectMissing
from tailrace.storage.objects import Bytes, ObjectInfo, Objects

MEGABYTE = 1024 * 1024


class ObjectsContract:
    """The tests of an object store; subclass it with a fixture `objects`, as the module's docstring shows."""

    many = 1100
    """How many objects the tests of listing and deleting use: more than one page of S3."""

    @pytest.fixture
    def folder(self) -> str:
        """Return a prefix that no other test uses."""
        return f"contract-{uuid.uuid4().hex}/"

    # --- whole objects ---
    @pytest.mark.parametrize(
        "parts",
        [
            [b"one"],
            [b"several ", b"parts ", b"joined"],
            [bytearray(b"of any "), memoryview(b"kind"), memoryview(b"xxand cutxx")[2:-2]],
            [memoryview(b"signed").cast("b"), memoryview(b"or wider").cast("I")],
            [],
            [b""],
            [b"", b"some are empty", b""],
            [bytes([n % 256]) * (n % 7) for n in range(5000)],
        ],
        ids=lambda parts: f"{len(parts)} parts",
    )
    def test_what_is_put_can_be_got(self, objects: Objects, folder: str, parts: Sequence[Bytes]) -> None:
        objects.put(folder + "object", parts)
        got = objects.get(folder + "object")
        assert isinstance(got, memoryview)
        assert got == b"".join(parts)

    def test_a_large_object(self, objects: Objects, folder: str) -> None:
        data = random.Random(8).randbytes(8 * MEGABYTE)
        objects.put(folder + "large", [data[:MEGABYTE], memoryview(data)[MEGABYTE:]])
        assert bytes(objects.get(folder + "large")) == data
        assert list(objects.list(folder)) == [ObjectInfo(folder + "large", len(data))]

    def test_what_was_given_can_be_changed_afterwards(self, objects: Objects, folder: str) -> None:
        data = bytearray(b"before")
        objects.put(folder + "object", [data])
        data[:] = b"after!"
        assert bytes(objects.get(folder + "object")) == b"before"

    def test_what_was_got_outlives_the_object(self, objects: Objects, folder: str) -> None:
        objects.put(folder + "object", [b"x" * 100_000])
        whole = objects.get(folder + "object")
        (part,) = objects.get_ranges(folder + "object", [(50_000, 10)])
        objects.delete([folder + "object"])
        assert whole == b"x" * 100_000
        assert part == b"x" * 10

    @pytest.mark.parametrize(
        "name", ["plain", "a/b/c/d", "UPPER-lower_09.txt", "k=v/0001", "..dots..", "x" * 200, "7/0b-4f.arrow"]
    )
    def test_names(self, objects: Objects, folder: str, name: str) -> None:
        objects.put(folder + name, [name.encode()])
        assert bytes(objects.get(folder + name)) == name.encode()
        assert list(objects.list(folder)) == [ObjectInfo(folder + name, len(name))]
        objects.delete([folder + name])
        assert list(objects.list(folder)) == []

    def test_names_differ_by_case_and_by_folder(self, objects: Objects, folder: str) -> None:
        names = [folder + name for name in ("a", "A", "b/a", "b/A", "ba")]
        for name in names:
            objects.put(name, [name.encode()])
        assert [bytes(objects.get(name)).decode() for name in names] == names

    # --- ranges ---
    @pytest.mark.parametrize(
        "ranges",
        [
            [],
            [(0, 1000)],
            [(0, 1), (999, 1)],
            [(500, 10), (10, 10), (500, 10)],
            [(0, 600), (400, 600), (450, 50)],
            [(0, 0), (1000, 0), (3, 2)],
            [(990, 20)],
            [(990, 20), (5, 5)],
            [(1000, 5)],
            [(5, 5), (2000, 5)],
            [(2000, 5), (3 * MEGABYTE, 5)],
        ],
        ids=repr,
    )
    def test_ranges(self, objects: Objects, folder: str, ranges: list[tuple[int, int]]) -> None:
        data = random.Random(1000).randbytes(1000)
        objects.put(folder + "object", [data])
        got = objects.get_ranges(folder + "object", ranges)
        assert all(isinstance(view, memoryview) for view in got)
        assert [bytes(view) for view in got] == [data[at : at + length] for at, length in ranges]

    def test_ranges_far_apart(self, objects: Objects, folder: str) -> None:
        data = random.Random(9).randbytes(8 * MEGABYTE)
        objects.put(folder + "large", [data])
        ranges = [(7 * MEGABYTE, 1000), (10, 1000), (2 * MEGABYTE, MEGABYTE), (8 * MEGABYTE - 5, 100)]
        got = objects.get_ranges(folder + "large", ranges)
        assert [bytes(view) for view in got] == [data[at : at + length] for at, length in ranges]

    def test_ranges_of_an_empty_object(self, objects: Objects, folder: str) -> None:
        objects.put(folder + "empty", [])
        assert objects.get_ranges(folder + "empty", [(0, 5), (5, 5)]) == [b"", b""]

    # --- what is not there ---
    def test_missing(self, objects: Objects, folder: str) -> None:
        name = folder + "missing"
        for call in (lambda: objects.get(name), lambda: objects.get_ranges(name, [(0, 1)])):
            with pytest.raises(ObjectMissing) as caught:
                call()
            assert caught.value.name == name

    def test_deleted_is_missing(self, objects: Objects, folder: str) -> None:
        objects.put(folder + "a", [b"a"])
        objects.put(folder + "b", [b"b"])
        objects.delete([folder + "a"])
        with pytest.raises(ObjectMissing):
            objects.get(folder + "a")
        assert bytes(objects.get(folder + "b")) == b"b"

    def test_deleting_what_is_not_there_is_no_error(self, objects: Objects, folder: str) -> None:
        objects.put(folder + "a", [b"a"])
        objects.put(folder + "z", [b"z"])
        objects.delete([folder + "missing"])
        objects.delete([folder + "a", folder + "missing", folder + "z", folder + "no/such/folder"])
        objects.delete([])
        assert list(objects.list(folder)) == []

    # --- many ---
    def test_a_listing_shows_that_folder_only(self, objects: Objects, folder: str) -> None:
        inside = {folder + name: len(name) for name in ("a", "b/c", "b/d/e")}
        for name in (*inside, folder[:-1] + "0/a", folder[:-1] + "a"):
            objects.put(name, [name.removeprefix(folder).encode()])
        assert {info.name: info.size for info in objects.list(folder)} == inside
        assert {info.name for info in objects.list(folder + "b/")} == {folder + "b/c", folder + "b/d/e"}
        assert list(objects.list(folder + "empty/")) == []

    def test_many_objects(self, objects: Objects, folder: str) -> None:
        names = [f"{folder}{n // 100}/{n}" for n in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: objects.put(name, [b"x"]), names))
        assert sorted(info.name for info in objects.list(folder)) == sorted(names)
        objects.delete(name for name in names[1:])
        assert [info.name for info in objects.list(folder)] == names[:1]

    def test_threads(self, objects: Objects, folder: str) -> None:
        def work(worker: int) -> None:
            for n in range(10):
                name, data = f"{folder}{worker}/{n}", random.Random(worker * 100 + n).randbytes(20_000)
                objects.put(name, [data[:7], data[7:]])
                assert bytes(objects.get(name)) == data
                assert objects.get_ranges(name, [(19_000, 2000), (3, 4)]) == [data[19_000:], data[3:7]]
                if n % 2:
                    objects.delete([name])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert len(list(objects.list(folder))) == 40
