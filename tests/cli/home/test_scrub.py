"""`tailrace scrub`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.log.format import head as heads
from tailrace.log.integrity import scrub as scrubbing
from tests.cli.runs import Cli


def filled(cli: Cli) -> Path:
    """A topic with one object; gives the object's path."""
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="x" * 100_000)
    (path,) = [path for path in (Path(cli.home) / "objects").rglob("*") if path.is_file()]
    return path


def test_a_home_without_damage(cli: Cli) -> None:
    filled(cli)
    assert cli("scrub").out.splitlines() == ["read 1 record in 1 chunk of 1 topic, 98.0 KiB", "✓ no damage"]
    found = cli("scrub", "orders", "--json").json
    assert found["clean"] is True
    assert found["read"]["records"] == 1
    assert found["damages"] == []


def test_damage_is_named(cli: Cli) -> None:
    path = filled(cli)
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    ran = cli.fails("scrub", code=3)
    name = path.relative_to(Path(cli.home) / "objects")
    assert f"✗ topic 'orders': {name} at byte " in ran.out
    assert "lost: offset 0 of partition 0" in ran.out
    assert ran.out.endswith("1 damage; the rest can be read\n")
    (damage,) = cli.fails("scrub", "--json", code=3).json["damages"]
    assert damage["kind"] == "bytes"
    assert damage["topic"] == "orders"
    assert damage["where"] == str(name)
    assert damage["lost"] == [{"partition": 0, "first": 0, "last": 0}]
    assert "lost: offset 0 of partition 0 of 'orders'" in cli.fails("topic", "read", "orders").err


def test_records_of_long_compacted_runs_are_not_counted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)
    with tailrace.open(cli.home) as home:
        topic = home.create_topic("orders", compact=True)
        for n in range(30):
            topic.append([(b"%d" % (n % 3), b"x")])
        home.upkeep()
        there = len(list(topic.records()))
    assert f"read {there} records in" in cli("scrub").out
    monkeypatch.setattr(scrubbing, "MAX_BYTES_PER_READ", 100)
    assert "read at most 30 records in" in cli("scrub").out
    assert cli("scrub", "--json").json["read"]["at_most"] is True


def test_a_sample(cli: Cli) -> None:
    filled(cli)
    assert "no damage" in cli("scrub", "--sample", "50%").out
    for wrong in ("50", "0%", "101%", "half"):
        assert "is no share; write a percentage" in cli.fails("scrub", "--sample", wrong).err


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    filled(cli)
    assert "did you mean 'orders'?" in cli.fails("scrub", "order").err


def test_quarantine_asks_is_kept_and_can_be_lifted(cli: Cli) -> None:
    path = filled(cli)
    path.unlink()
    assert "Aborted" in cli.fails("scrub", "--quarantine", input="n\n").err
    assert cli("topic", "quarantined", "orders").out == "nothing of 'orders' is quarantined\n"
    ran = cli.fails("scrub", "--quarantine", "--why", "a test", input="y\n", code=3)
    assert "Let readers pass 1 lost record?" in ran.err
    assert cli("topic", "read", "orders").out == ""
    (one,) = cli("topic", "quarantined", "orders", "--json").json
    assert (one["partition"], one["first"], one["last"], one["why"]) == (0, 0, 0, "a test")
    assert "a test" in cli("topic", "quarantined", "orders").out
    assert "lifted 1 quarantine of" in cli("topic", "lift", "orders", "--yes").out
    assert "is gone" in cli.fails("topic", "read", "orders").err


def test_nothing_to_quarantine(cli: Cli) -> None:
    filled(cli)
    assert "nothing to quarantine" in cli("scrub", "--quarantine").err


def test_a_copy(cli: Cli, tmp_path: Path) -> None:
    filled(cli)
    out = cli("home", "copy", cli.home, tmp_path / "copy").out
    assert out.startswith(f"copied 1 topic, 0 streams, 1 object (98.3 KiB) to {tmp_path / 'copy'}; the copy:")
    assert out.endswith("✓ no damage\n")
    assert "is not empty" in cli.fails("home", "copy", cli.home, tmp_path / "copy").err
    assert cli("home", "copy", cli.home, tmp_path / "other", "--json").json["scrub"]["clean"] is True
    assert "no home in" in cli.fails("home", "copy", tmp_path / "nothing", tmp_path / "more").err
    assert not (tmp_path / "more").exists()
