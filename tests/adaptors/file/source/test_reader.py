"""Files as a source: what is read, once; what has become of a file; what is wrong with one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.adaptors.contract import Changes, Piece, Who
from tailrace.adaptors.file.settings import FileSink, FileSource
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.file.source import follower as following
from tailrace.adaptors.file.source import parquet
from tailrace.adaptors.file.source.file_position import settled
from tailrace.adaptors.file.source.listing import FilesPlace, FoundFile
from tailrace.adaptors.file.source.reader import FileReader
from tailrace.adaptors.registry import make_reader
from tailrace.adaptors.rows.rows import columns_of, keys_of, messages_of, namespace_of
from tailrace.errors import BadInput, BadSetting, NotReady, PositionLost, Unavailable


def reader(path: Path, **settings: Any) -> FileReader:
    return FileReader(FileSource(path=str(path), poll_seconds=0.01, **settings))


def copied(made: FileReader, namespace: str, rows: int = 1000) -> list[dict[str, Any]]:
    pieces = [Piece(p.namespace, json.loads(json.dumps(p.bounds)), p.rows) for p in made.pieces(namespace, rows)]
    return [m.data for piece in pieces for batch in made.copy(piece) for m in messages_of(batch)]


class Follower:
    """Follows, and takes down what comes."""

    def __init__(self, path: Path, position: Any, namespaces: list[str], **settings: Any) -> None:
        self.reader = reader(path, **settings)
        self.position = json.loads(json.dumps(position))
        self.changes: Iterator[Changes] = self.reader.follow(self.position, namespaces)

    def next(self) -> list[Any]:
        """The documents that are there now, and no more."""
        out: list[Any] = []
        while True:
            changes = next(self.changes)
            before, self.position = self.position, json.loads(json.dumps(changes.position))
            if not changes.rows and not changes.appeared and before == self.position:
                return out
            out += [m.data for batch in changes.rows for m in messages_of(batch)]

    def names(self) -> list[str]:
        return list(self.position)


def add(path: Path, *ids: int, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(json.dumps({"id": n}) for n in ids) + end)


def docs(*ids: int) -> list[dict[str, int]]:
    return [{"id": n} for n in ids]


# -- which files
def test_files_of_a_folder_and_their_namespaces(tmp_path: Path) -> None:
    for name in (
        "orders.jsonl",
        "people.CSV",
        "x.txt",
        ".hidden.jsonl",
        "_own/a.jsonl",
        "big/a.jsonl",
        "big/deep/b.jsonl",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text('{"id": 1}\n')
    made = reader(tmp_path)
    assert {n.name: n.rows for n in made.namespaces()} == {"big": 2, "orders": 1, "people": 1}
    assert copied(made, "big") == [{"id": 1}, {"id": 1}]


def test_a_pattern_and_a_name_for_all(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.txt"):
        add(tmp_path / name, ord(name[0]))
    made = reader(tmp_path / "*.log", format="jsonl", as_namespace="logs")
    assert [n.name for n in made.namespaces()] == ["logs"]
    assert copied(made, "logs") == docs(97, 98)


def test_names_with_marks_of_patterns_are_files_too(tmp_path: Path) -> None:
    add(tmp_path / "a[1].jsonl", 1)
    assert copied(reader(tmp_path), "a[1]") == docs(1)


def test_what_our_sink_has_written_can_be_read(tmp_path: Path) -> None:
    add(tmp_path / "orders.jsonl", 1, 2)
    source = reader(tmp_path / "orders.jsonl")
    sink = FileWriter(FileSink(path=str(tmp_path / "out"), plain=True))
    staged = sink.stage(b for piece in source.pieces("orders", 10) for b in source.copy(piece))
    sink.finish([staged], Who("p", "w", 1), {"0": 1})
    made = reader(tmp_path / "out")
    assert [n.name for n in made.namespaces()] == ["orders"]
    assert copied(made, "orders") == docs(1, 2)


# -- text
def test_json_keeps_its_types(tmp_path: Path) -> None:
    line = {"id": 1, "s": "2024-01-01", "f": 1.5, "b": True, "n": None, "l": [1, 2], "o": {"a": None}, "big": 2**70}
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n\n" + '{"id": 2}\n')
    first, second = copied(reader(tmp_path, keys=("id",)), "t")
    assert first == {**line, "big": str(2**70)}
    assert second == {"id": 2}


def test_csv_is_text_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfid,zip,note,n\r\n1,007,"a ""b"",\nc",1.5\r\n2,,"",\r\n')
    made = reader(tmp_path, keys=("id",), types={"n": "double"})
    assert copied(made, "t") == [
        {"id": "1", "zip": "007", "note": 'a "b",\nc', "n": 1.5},
        {"id": "2", "zip": None, "note": "", "n": None},
    ]


def test_csv_without_a_line_of_names_and_with_other_delimiters(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1;a\n2;b\n")
    made = reader(tmp_path, columns=("id", "x"), delimiter=";")
    assert copied(made, "t") == [{"id": "1", "x": "a"}, {"id": "2", "x": "b"}]
    (tmp_path / "u.tsv").write_text("id\tx\n1\ta,b\n")
    assert copied(reader(tmp_path / "u.tsv"), "u") == [{"id": "1", "x": "a,b"}]


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_pieces_of_csv_with_lines_in_quotes(tmp_path: Path, rows: int) -> None:
    text = "id,x\n" + "".join(f'{n},"line\n{"x" * (n % 7)}\n"\n' for n in range(100))
    (tmp_path / "t.csv").write_text(text)
    made = reader(tmp_path)
    assert [int(d["id"]) for d in copied(made, "t", rows)] == list(range(100))


def test_keys_and_columns_are_as_asked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    made = reader(tmp_path, keys=("b",))
    (batch,) = [b for p in made.pieces("t", 10) for b in made.copy(p)]
    assert (namespace_of(batch), keys_of(batch)) == ("t", ("b",))
    assert columns_of(batch).schema.names == ["a", "b"]


def test_parquet_by_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "t.parquet", row_group_size=7)
    made = reader(tmp_path)
    pieces = made.pieces("t", 20)
    assert [p.rows for p in pieces] == [21, 21, 21, 21, 16]
    assert copied(made, "t", 20) == docs(*range(100))
    assert made.namespaces()[0].rows == 100


# -- copy and follow meet
def test_each_row_once_wherever_the_copy_was_cut_off(tmp_path: Path) -> None:
    """What is there at `begin` is copied, what comes later is followed, whoever asks for the pieces, and when."""
    path = tmp_path / "t.jsonl"
    add(path, 1, 2)
    position = json.loads(json.dumps(reader(path).begin(["t"])))
    add(path, 3)
    again = reader(path)
    again.begun(position)
    assert copied(again, "t") == docs(1, 2)
    follower = Follower(path, position, ["t"])
    assert follower.next() == docs(3)
    add(path, 4)
    assert follower.next() == docs(4)
    later = reader(path)
    later.begun(follower.position)
    assert copied(later, "t") == docs(1, 2)
    assert Follower(path, follower.position, ["t"]).next() == []


def test_new_files_are_followed_from_their_start(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    add(tmp_path / "old" / "1.jsonl", 1)
    position = reader(tmp_path).begin(["old"])
    add(tmp_path / "old" / "2.jsonl", 2)
    follower = Follower(tmp_path, position, ["old"])
    assert follower.next() == docs(2)


def test_a_new_namespace_is_offered_and_followed_once_it_is_wanted(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", 1)
    follower = Follower(tmp_path, reader(tmp_path).begin(["a"]), ["a"])
    assert follower.next() == []
    add(tmp_path / "b.jsonl", 2)
    add(tmp_path / "c.jsonl", 3)
    changes = next(follower.changes)
    assert changes.appeared == ["b", "c"]
    assert [list(follower.reader.copy(p)) for p in follower.reader.pieces("b", 10)] == [[]]
    assert follower.next() == docs(2)
    add(tmp_path / "c.jsonl", 4)
    assert follower.next() == []


def test_while_nobody_looked_files_came_and_grew(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", 1)
    position = reader(tmp_path).begin(["a"])
    add(tmp_path / "a.jsonl", 2)
    add(tmp_path / "b.jsonl", 3)
    restarted = reader(tmp_path)
    restarted.begun(position)
    assert [n.name for n in restarted.namespaces()] == ["a", "b"]
    assert copied(restarted, "b") == []
    assert Follower(tmp_path, position, ["a", "b"]).next() == docs(2, 3)


def test_new_parquet_files_are_read_once_they_are_whole(tmp_path: Path) -> None:
    follower = Follower(tmp_path, reader(tmp_path).begin([]), ["t"])
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "whole", row_group_size=4)
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:100])
    assert follower.next() == []
    (tmp_path / "t.parquet").write_bytes(whole)
    assert follower.next() == docs(*range(10))
    assert Follower(tmp_path, follower.position, ["t"]).next() == []


def test_a_parquet_file_that_is_being_written_when_the_copy_begins_comes_after_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "whole.parquet", row_group_size=4)
    whole = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:100])
    made = reader(tmp_path)
    position = made.begin(["t", "whole"])
    (tmp_path / "t.parquet").unlink()
    assert copied(made, "t") == []
    assert copied(made, "whole") == docs(*range(10))
    follower = Follower(tmp_path, position, ["t", "whole"])
    assert follower.next() == []
    (tmp_path / "t.parquet").write_bytes(whole)
    assert follower.next() == docs(*range(10))


def test_a_parquet_file_that_goes_before_it_is_whole_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    follower = Follower(tmp_path, reader(tmp_path).begin(["t"]), ["t"])
    assert follower.next() == []
    (tmp_path / "t.parquet").unlink()
    assert follower.next() == []
    assert follower.names() == []


def test_a_parquet_file_may_be_gone_on_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_STEPS", 1)
    pq.write_table(pa.table({"id": range(10)}), tmp_path / "t.parquet", row_group_size=4)
    first = Follower(tmp_path, {}, ["t"])
    position = next(first.changes).position
    assert Follower(tmp_path, position, ["t"]).next() == docs(*range(4, 10))


# -- what happens between the look that finds a file and the opening of its path
def write(path: Path, *ids: int) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": list(ids)}), path)
    elif path.suffix == ".csv":
        path.write_text("".join(f"{line}\n" for line in ("id", *ids)))
    else:
        add(path, *ids)


@pytest.mark.parametrize("end", ["jsonl", "csv", "parquet"])
def test_a_file_that_goes_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.{end}", 1)
    listed = FilesPlace.files

    def and_gone(place: FilesPlace) -> Iterator[FoundFile]:
        for found in listed(place):
            if found.namespace == "b":
                place.path(found.name).unlink()
            yield found

    follower = Follower(tmp_path, reader(tmp_path).begin(["a", "b"]), ["a", "b", "c"])
    with monkeypatch.context() as patched:
        patched.setattr(FilesPlace, "files", and_gone)
        assert [found.name for found in reader(tmp_path).namespaces() if found.rows] == ["a", "c"]
    write(tmp_path / f"b.{end}", 1)
    with monkeypatch.context() as patched:
        patched.setattr(FilesPlace, "files", and_gone)
        position = reader(tmp_path).begin(["a", "b", "c"])
    assert [name for name, (_, _, copied, *_) in position.items() if copied] == [f"a.{end}", f"c.{end}"]
    write(tmp_path / f"b.{end}", 1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(following, "settled", gone_since(tmp_path / f"b.{end}"))
        found = follower.next()
    assert [int(row["id"]) for row in found] == [1], "of c, which came after the position"
    assert follower.next() == []
    assert f"b.{end}" not in follower.names()


def gone_since(path: Path) -> Any:
    def work(*given: Any) -> Any:
        found = settled(*given)
        path.unlink(missing_ok=True)
        return found

    return work


def test_a_file_that_is_rotated_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rotated = tmp_path / "t.jsonl", tmp_path / "t.1.jsonl"
    add(path, *range(10))
    follower = Follower(tmp_path, reader(tmp_path).begin(["t"]), ["t"], as_namespace="t")
    add(path, 10)

    def and_rotated(*given: Any) -> Any:
        found = settled(*given)
        if not rotated.exists():
            path.rename(rotated)
            add(path, *range(100, 200))
        return found

    monkeypatch.setattr(following, "settled", and_rotated)
    found = [*follower.next(), *follower.next()]
    assert sorted(row["id"] for row in found) == [10, *range(100, 200)]


@pytest.mark.parametrize("times", [1, 1000])
def test_a_folder_that_goes_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    add(tmp_path / "t.jsonl", 1)
    listed, gone = Path.glob, [True] * times

    def and_gone(path: Path, pattern: str) -> Iterator[Path]:
        yield from listed(path, pattern)
        if gone and gone.pop():
            raise FileNotFoundError(2, "No such file or directory", str(path / "_temporary"))

    monkeypatch.setattr(Path, "glob", and_gone)
    if times == 1:
        assert [found.name for found in reader(tmp_path).namespaces()] == ["t"]
    else:
        with pytest.raises(Unavailable, match="come and go faster than they can be listed"):
            reader(tmp_path).namespaces()


def test_a_root_that_goes_while_it_is_listed_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "mounted"
    root.mkdir()
    add(root / "t.jsonl", 1)
    follower = Follower(root, reader(root).begin(["t"]), ["t"])
    assert follower.next() == []

    def unmounted(path: Path, pattern: str) -> list[Path]:
        root.rename(tmp_path / "away")
        return []

    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", unmounted)
        with pytest.raises(Unavailable, match="is not there"):
            follower.next()
    assert follower.names() == ["t.jsonl"]


# -- many files
def test_what_has_come_to_many_files_is_given_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position has all files: one for each of ten thousand new files would be a hundred million entries."""
    monkeypatch.setattr(following, "MOST_SECONDS", 1000)
    monkeypatch.setattr(following, "MOST_STEPS", 100)
    for n in range(250):
        add(tmp_path / f"{n:03}.jsonl", n)
    made = reader(tmp_path, as_namespace="t").follow({}, ["t"])
    given = [next(made) for _ in range(4)]
    assert [sum(batch.num_rows for batch in changes.rows) for changes in given] == [100, 100, 50, 0]
    again = reader(tmp_path, as_namespace="t").follow(given[0].position, ["t"])
    assert [m.data for batch in next(again).rows for m in messages_of(batch)] == docs(*range(100, 200))


def test_many_files_that_go_at_once_are_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have another name now: to list its folder for each of ten thousand would take an hour."""
    for n in range(100):
        add(tmp_path / f"{n:03}.jsonl", n)
    follower = Follower(tmp_path, reader(tmp_path, as_namespace="t").begin(["t"]), ["t"], as_namespace="t")
    assert follower.next() == []
    for n in range(98):
        (tmp_path / f"{n:03}.jsonl").unlink()
    (tmp_path / "098.jsonl").rename(tmp_path / "098.1.jsonl")
    add(tmp_path / "098.1.jsonl", 1000)
    listed, calls = os.listdir, list[Any]()
    monkeypatch.setattr(os, "listdir", lambda path: calls.append(path) or listed(path))
    assert follower.next() == docs(1000)
    assert sorted(follower.names()) == ["098.1.jsonl", "099.jsonl"]
    assert len(calls) <= 2


def test_one_bad_file_does_not_keep_back_the_others(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", 1)
    add(tmp_path / "b.jsonl", 2)
    (tmp_path / "c.jsonl").write_text("{no json}\n")
    made = reader(tmp_path, as_namespace="t").follow({}, ["t"])
    given = list[Any]()
    with pytest.raises(BadInput, match=r"c\.jsonl"):
        while True:
            changes = next(made)
            given += [m.data for batch in changes.rows for m in messages_of(batch)]
            position = changes.position
    assert given == docs(1, 2)
    assert position["c.jsonl"][3] == 0


def test_a_row_group_that_memory_cannot_hold_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_BYTES", 100_000)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 1000)
    add(tmp_path / "a.jsonl", 1)
    pq.write_table(pa.table({"id": range(100_000)}), tmp_path / "b.parquet", row_group_size=100_000)
    made = reader(tmp_path, as_namespace="t").follow({}, ["t"])
    first, second = next(made), next(made)
    assert [m.data for batch in first.rows for m in messages_of(batch)] == docs(1)
    assert first.position["b.parquet"][3] == 0
    assert not isinstance(second.rows, list), "it is in a file"
    assert [n for batch in second.rows for n in columns_of(batch).column("id").to_pylist()] == list(range(100_000))


# -- the last line
def test_a_json_line_needs_no_end_to_be_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    add(path, 1, 2, end="")
    follower = Follower(path, reader(path).begin(["t"]), ["t"])
    assert follower.next() == docs(2)
    with path.open("a") as file:
        file.write("\n" + '{"id": 3')
    assert follower.next() == []
    with path.open("a") as file:
        file.write("3}\n")
    assert follower.next() == docs(33)


def test_a_line_that_was_whole_must_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    add(path, 1, end="")
    follower = Follower(path, reader(path).begin(["t"]), ["t"])
    assert follower.next() == docs(1)
    add(path, 2)
    with pytest.raises(BadInput, match=r"t.jsonl, line 1: it was whole when it was read, and has grown since"):
        follower.next()


def test_a_csv_line_waits_for_its_end_while_it_may_still_come(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id\n1\n2")
    follower = Follower(path, reader(path).begin(["t"]), ["t"])
    assert copied(reader(path), "t") == [{"id": "1"}]
    assert (follower.next(), follower.next()) == ([], [])
    assert [r.getMessage() for r in caplog.records if "the last line has no end" in r.getMessage()] != []
    with path.open("a") as file:
        file.write("2\n3")
    assert follower.next() == [{"id": "22"}]
    long_ago = time.time() - following.SETTLED - 1
    os.utime(path, (long_ago, long_ago))
    assert follower.next() == [{"id": "3"}]


def test_files_that_are_complete_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id\n1\n2")
    made = reader(path, follow=False)
    position = made.begin(["t"])
    assert copied(made, "t") == [{"id": "1"}, {"id": "2"}]
    path.write_text("id\n1\n2\n3\n")
    assert Follower(path, position, ["t"], follow=False).next() == []


# -- what becomes of a file
def rotating(tmp_path: Path) -> tuple[Path, Follower]:
    path = tmp_path / "app.jsonl"
    add(path, 1, 2)
    follower = Follower(path, reader(path).begin(["app"]), ["app"])
    assert follower.next() == []
    return path, follower


def test_rotation_by_renaming(tmp_path: Path) -> None:
    """The rest of the old file, then the new one; what is still written to the old one too."""
    path, follower = rotating(tmp_path)
    add(path, 3)
    old = path.rename(tmp_path / "app.jsonl.1")
    add(path, 4)
    assert sorted(d["id"] for d in follower.next()) == [3, 4]
    add(old, 5)
    add(path, 6)
    assert sorted(d["id"] for d in follower.next()) == [5, 6]
    assert sorted(follower.names()) == ["app.jsonl", "app.jsonl.1"]
    old.unlink()
    assert follower.next() == []
    assert follower.names() == ["app.jsonl"]


def test_rotation_while_nobody_looked(tmp_path: Path) -> None:
    path, follower = rotating(tmp_path)
    add(path, 3)
    path.rename(tmp_path / "app.jsonl.1")
    add(path, 4)
    again = Follower(path, follower.position, ["app"])
    assert sorted(d["id"] for d in again.next()) == [3, 4]


def test_a_file_that_moves_within_the_folder_is_not_read_twice(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", 1)
    follower = Follower(tmp_path, reader(tmp_path, as_namespace="x").begin(["x"]), ["x"], as_namespace="x")
    add(tmp_path / "a.jsonl", 2)
    (tmp_path / "a.jsonl").rename(tmp_path / "a-2024.jsonl")
    assert follower.next() == docs(2)
    assert follower.names() == ["a-2024.jsonl"]


def test_a_file_that_is_cut_is_a_new_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, follower = rotating(tmp_path)
    path.write_text('{"id": 9}\n')
    assert follower.next() == docs(9)
    assert "is another file than it was, or was cut" in caplog.text


def test_a_file_that_is_cut_and_grows_beyond_where_it_was(tmp_path: Path) -> None:
    path, follower = rotating(tmp_path)
    path.write_text("")
    add(path, *range(10, 20))
    assert follower.next() == docs(*range(10, 20))


def test_a_file_that_is_cut_and_begins_as_before(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    add(path, *range(300))
    follower = Follower(path, reader(path).begin(["app"]), ["app"])
    os.truncate(path, 0)
    add(path, *range(200))
    with pytest.raises(PositionLost, match="it begins the same, and then lacks"):
        follower.next()
    path.rename(tmp_path / "other.jsonl")
    again = Follower(tmp_path, follower.position, ["app", "other"])
    assert again.next() == docs(*range(200)), "as a file of its own, as told"


def test_a_file_that_was_restored_and_has_grown_since(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    add(path, *range(200))
    older = path.read_bytes()
    add(path, *range(200, 300))
    follower = Follower(path, reader(path).begin(["app"]), ["app"])
    path.write_bytes(older)
    add(path, *range(1200, 1400))
    with pytest.raises(PositionLost, match="it begins the same, and then lacks"):
        follower.next()


def test_a_position_of_a_version_before_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    add(path, *range(300))
    stored = {name: progress[:6] for name, progress in reader(path).begin(["app"]).items()}
    add(path, 300)
    assert Follower(path, stored, ["app"]).next() == docs(300)


def test_a_parquet_file_that_is_another_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    follower = Follower(tmp_path, reader(tmp_path).begin(["t"]), ["t"])
    assert follower.next() == []
    pq.write_table(pa.table({"id": [2, 3]}), path)
    assert follower.next() == docs(2, 3)


def test_a_file_that_is_gone_is_forgotten_and_may_come_back(tmp_path: Path) -> None:
    path, follower = rotating(tmp_path)
    path.unlink()
    assert (follower.next(), follower.names()) == ([], [])
    add(path, 1)
    assert follower.next() == docs(1)


def test_a_folder_that_is_gone_forgets_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    add(tmp_path / "in" / "a.jsonl", 1)
    follower = Follower(tmp_path / "in", reader(tmp_path / "in").begin(["a"]), ["a"])
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(Unavailable, match="is not there"):
        follower.next()


def test_the_copy_finds_a_file_that_was_renamed(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    add(path, 1, 2)
    made = reader(path)
    made.begin(["app"])
    pieces = made.pieces("app", 1)
    path.rename(tmp_path / "app.jsonl.1")
    add(path, 3)
    assert [m.data for p in pieces for b in made.copy(p) for m in messages_of(b)] == docs(1, 2)


def test_a_copy_of_what_is_gone_says_so(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    add(path, 1, 2)
    made = reader(path)
    made.begin(["app"])
    pieces = made.pieces("app", 1)
    path.write_text('{"id": 9}\n')
    with pytest.raises(PositionLost, match=r"app.jsonl was changed or removed while it was being copied"):
        [list(made.copy(p)) for p in pieces]


# -- what is wrong
@pytest.mark.parametrize(
    ("name", "text", "hint", "settings"),
    [
        ("t.jsonl", '{"id": 1}\n\n{"id": \n', "line 3: .*truncated", {}),
        ("t.jsonl", '{"id": 1}\n[1]\n', "line 2: not a JSON object", {}),
        ("t.jsonl", '{"id": 1}\n{"i": 1}\n', "line 2: no field 'id', which is part of the id", {"keys": ("id",)}),
        ("t.csv", "a,b\n1,2\n\n1,2,3\n", "line 4: 3 values for 2 columns", {}),
        ("t.csv", 'a,b\n1,"x\ny"\n1\n', "line 4: 1 values for 2 columns", {}),
        ("t.csv", "a,b\n1,2\nx,2\n", "line 3: the value of 'a' is not of type int64", {"types": {"a": "int64"}}),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, name: str, text: str, hint: str, settings: dict[str, Any]) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=rf"{name}, {hint}"):
        copied(reader(tmp_path, **settings), "t")


def test_a_wrong_line_far_into_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    add(path, *range(500))
    position = reader(path).begin(["t"])
    with path.open("a") as file:
        file.write("oops\n")
    with pytest.raises(BadInput, match=r"t.jsonl, line 501: "):
        Follower(path, position, ["t"]).next()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"keys": ("idd",)}, "t.csv: the first line has no 'idd'; did you mean 'id'"),
        ({"types": {"idd": "int64"}}, "did you mean 'id'"),
        ({"types": {"id": "whole"}}, r"types: Arrow knows no 'whole' \(for 'id'\)"),
    ],
)
def test_settings_that_do_not_fit_the_file(tmp_path: Path, settings: dict[str, Any], hint: str) -> None:
    (tmp_path / "t.csv").write_text("id\n1\n")
    with pytest.raises(BadSetting, match=hint):
        copied(reader(tmp_path, **settings), "t")


def test_keys_that_a_parquet_file_does_not_have(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t.parquet")
    with pytest.raises(BadSetting, match="the file has no 'idd'; did you mean 'id'"):
        copied(reader(tmp_path, keys=("idd",)), "t")


def test_a_torn_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadInput, match=r"t.parquet is not a whole Parquet file"):
        reader(tmp_path, follow=False).begin(["t"])
    monkeypatch.setattr(following, "PATIENCE", 0.0)
    follower = Follower(tmp_path, reader(tmp_path).begin(["t"]), ["t"])
    with pytest.raises(BadInput, match="nor has it grown"):
        [follower.next() for _ in range(3)]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"there is no file .*no.jsonl"):
        reader(tmp_path / "no.jsonl").check()
    with pytest.raises(NotReady, match="there is no folder"):
        reader(tmp_path / "no" / "no.jsonl").check()
    with pytest.raises(NotReady, match="there is no file"):
        reader(tmp_path / "*.jsonl").check()
    with pytest.raises(NotReady, match=r"'s3://bucket/x' is no folder of this machine; mount it"):
        FileReader(FileSource(path="s3://bucket/x?secret=1")).check()
    (tmp_path / "x.dat").touch()
    with pytest.raises(NotReady, match=r"'x.dat' does not say what is in the file; say format ="):
        reader(tmp_path / "x.dat").check()
    reader(tmp_path).check()


@pytest.mark.skipif(not os.getuid(), reason="root may read everything")
def test_a_file_one_may_not_read(tmp_path: Path) -> None:
    add(tmp_path / "a.jsonl", 1)
    (tmp_path / "a.jsonl").chmod(0)
    with pytest.raises(NotReady, match="give this user the right"):
        reader(tmp_path).check()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"pth": "x"}, "the source 'file' has no 'pth'; did you mean 'path'"),
        ({}, "the source 'file' needs 'path'"),
        ({"path": "${NOT_SET_ANYWHERE}"}, r"path uses \$\{NOT_SET_ANYWHERE\}, which is not set"),
        ({"path": "x", "format": "xml"}, "Invalid enum value 'xml'"),
        ({"path": "x", "poll_seconds": 0}, "poll_seconds"),
    ],
)
def test_settings(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadSetting, match=hint):
        make_reader("file", given)


def test_an_unknown_adaptor() -> None:
    with pytest.raises(BadSetting, match="no 'fiel'; did you mean 'file'"):
        make_reader("fiel", {})
    with pytest.raises(BadSetting, match="'stdout' cannot be read from"):
        make_reader("stdout", {})
