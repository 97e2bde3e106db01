"""Commands for a sink: carried out where the sink has them, passed and told of where it has not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tailrace.adaptors.contract import Command, Who
from tailrace.adaptors.rows.command import command_rows, commands_of
from tailrace.pipeline.deliver.command_delivery import carry_out
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, deliver
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.functions import remap
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.runtime.open_topics import open_home
from tests.pipeline.toys import SinkSettings, ToySink, rows

WHO = Who("p", "w", 1)
RENAMED = Command("rename", "shop.bills")


class Renaming(ToySink):
    """Can rename, and notes what it was told."""

    commands = frozenset({"truncate", "rename"})
    told: list[tuple[str, Command]]

    def command(self, namespace: str, command: Command, who: Who) -> None:
        self.told.append((namespace, command))


def branch(tmp_path: Path, **more: object) -> Branch:
    place = ("p", "w", str(tmp_path / "home"), "p-log", "toy", {})
    return Branch(*place, **more)  # type: ignore[arg-type]


def test_a_command_says_what_the_source_said() -> None:
    for command in (Command("truncate"), Command("drop"), RENAMED):
        assert [*commands_of(command_rows("shop.orders", command, 7))] == [(0, command)]


def test_tasks_come_to_a_command_as_the_source_gave_it(tmp_path: Path) -> None:
    log = CommitLog(open_home(str(tmp_path / "home")), "p", partitions=1)
    log.begin(0)
    log.take_in([command_rows("shop.orders", RENAMED)], 1)
    toy = Branch("p", "w", str(tmp_path / "home"), "p-log", "tests.pipeline.toys:sink", {"path": str(tmp_path)})
    outcome = deliver(toy, [DeliveryRange(0, 0, 1, Mark(-1))])
    assert outcome.commands == {0: ("shop.orders", RENAMED)}


def test_a_sink_carries_out_what_it_can(tmp_path: Path) -> None:
    sink = ToySink(SinkSettings(path=str(tmp_path)))
    assert carry_out(branch(tmp_path), sink, "shop.orders", Command("truncate"), WHO) == ""
    assert rows(tmp_path) == [["shop.orders", "", "truncate", None]]
    assert carry_out(branch(tmp_path, namespace="items$"), sink, "shop.orders", Command("drop"), WHO) == ""
    assert len(rows(tmp_path)) == 1, "a namespace that is not the branch's is nothing to it"


def test_what_a_sink_cannot_do_is_passed_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = ToySink(SinkSettings(path=str(tmp_path)))
    with caplog.at_level(logging.WARNING, "tailrace"):
        told = carry_out(branch(tmp_path), sink, "shop.orders", RENAMED, WHO)
    assert told == (
        "rename to shop.bills of shop.orders was passed: its sink, toy, has no such command; the sink stays as it is"
    )
    assert [record.message for record in caplog.records] == [f"the writer 'w': {told}"]
    assert rows(tmp_path) == []


def test_both_names_of_a_rename_go_where_rows_go(tmp_path: Path) -> None:
    sink = Renaming(SinkSettings(path=str(tmp_path)))
    sink.told = []
    moved = branch(tmp_path, functions=(remap({r"shop\.(.*)": r"copy.\1"}),))
    assert carry_out(moved, sink, "shop.orders", RENAMED, WHO) == ""
    assert sink.told == [("copy.orders", Command("rename", "copy.bills"))]
    told = carry_out(branch(tmp_path, namespace="orders$"), sink, "shop.orders", RENAMED, WHO)
    assert "the branch does not have the new name" in told
    assert len(sink.told) == 1
