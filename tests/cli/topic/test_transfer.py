"""`tailrace topic export` and `import`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.runs import Cli


def test_there_and_back(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders", "-p", 2)
    cli("topic", "append", "orders", "--key", "id", input="".join(f'{{"id":{n}}}\n' for n in range(20)))
    said = cli("topic", "export", "orders", tmp_path / "out").out
    assert said.startswith("exported 20 records of 'orders' in 2 segments, ")
    assert said.endswith(f" to {tmp_path / 'out'}\n")
    assert "has segments already" in cli.fails("topic", "export", "orders", tmp_path / "out").err
    cli("topic", "create", "copy", "-p", 2)
    assert cli("topic", "import", "copy", tmp_path / "out").out == "imported 20 records into 'copy'\n"
    assert cli("topic", "read", "copy").out == cli("topic", "read", "orders").out
    again = cli("topic", "import", "copy", tmp_path / "out").out
    assert again == "imported 0 records into 'copy'; 20 records were there already\n"
    done = cli("topic", "import", "copy", tmp_path / "out", "--partition", 1, "--renumber", "--json").json
    assert [{**one, "records": one["records"] > 0} for one in done] == [
        {"partition": 1, "records": True, "present": 0, "segments": 1, "torn": [], "gaps": 0}
    ]


def test_export_as_json(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders", "-p", 2)
    cli("topic", "append", "orders", "--partition", 1, input="a\n")
    done = cli("topic", "export", "orders", tmp_path / "out", "--json").json
    assert done[1] == {"partition": 1, "first": 0, "next": 1, "records": 1, "segments": 1, "bytes": 30}


def test_a_torn_end_is_told_on_stderr(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders")
    cli("topic", "append", "orders", input="a\nb\n")
    cli("topic", "export", "orders", tmp_path / "out")
    os.truncate(tmp_path / "out" / "0" / "00000000000000000000.log", 45)
    cli("topic", "create", "copy")
    ran = cli("topic", "import", "copy", tmp_path / "out")
    assert ran.out == "imported 1 record into 'copy'\n"
    assert "torn at 30, after the entry of offset 0; the last 15 bytes are no whole entry" in ran.err


def test_what_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders")
    assert "No such file" in cli.fails("topic", "import", "orders", tmp_path / "nowhere").err
    assert "there is no topic 'other'" in cli.fails("topic", "export", "other", tmp_path / "out").err
    assert not (tmp_path / "out").exists()
