"""`tailrace spark …` as a process of its own, with a real Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tests.cli.runs import PROGRAM
from tests.cli.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def spark(home: Path, *arguments: object, code: int = 0) -> tuple[str, str]:
    env = {**os.environ, "TAILRACE_HOME": str(home)}
    command = [str(PROGRAM), "spark", *map(str, arguments), "--master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert done.returncode == code, done
    return done.stdout, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(place: Path) -> Home:
    return tailrace.open(place)


def test_files_to_a_topic_and_back(place: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text("".join(json.dumps({"id": n, "total": n * 2}) + "\n" for n in range(50)))
    with opened(place) as home:
        home.topic("orders", partitions=2)
    for _ in range(2):
        out, said = spark(place, "write", "orders", rows, "--format", "json", "--key", "id", "--id", "first")
        assert (out, said) == ("", "")
    with opened(place) as home:
        found = sorted(home.topic("orders").records(), key=lambda record: int(record.key or b""))
    assert [record.key for record in found] == [b"%d" % n for n in range(50)]
    assert json.loads(found[7].value or b"") == {"id": 7, "total": 14}
    out, said = spark(place, "read", "orders", "--to", tmp_path / "out", "--format", "json", "--columns", "key,value")
    assert (out, said) == ("", "")
    back = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(int(row["key"]) for row in back) == list(range(50))
    assert set(back[0]) == {"key", "value"}


def test_counting(place: Path) -> None:
    with opened(place) as home:
        topic = home.topic("orders", partitions=2)
        topic.append([(b"a", b"1"), (b"b", b"2"), (b"b", b"3")])
    command = [PROGRAM, "spark", "count", "orders", "--by", "key", "--json", "--master", "local[2]"]
    with Terminal(command, {**os.environ, "TAILRACE_HOME": str(place)}, columns=120) as shown:
        seen = shown.wait_for('{"key": "b", "records": 2}', 600)
    assert '{"key": "a", "records": 1}' in seen
    assert re.search(r"counting.*\d+/\d+.*tasks", seen), "a bar while it runs"
    out, said = spark(place, "count", "odrers", code=1)
    assert out == ""
    assert said.startswith("tailrace: there is no topic 'odrers'; did you mean 'orders'?")
    assert said.count("\n") == 1
