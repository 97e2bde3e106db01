"""The guide's pipeline, from a queue into files and another queue, whose run is killed at any moment."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.adaptors.rabbitmq.place import Place
from tests.pipeline.runs import process, until

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(600)]
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "rabbitmq.md"
ROUNDS = [pytest.param(1), pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_queue_into_files_and_another_queue(place: Place, tmp_path: Path, rounds: int) -> None:
    found = re.search(r"```python\n(# file: orders.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "orders.py").write_text(re.sub(r'(queues=\["|routing_key=")', rf"\g<1>{place.prefix}", found[1]))
    place.make("orders")
    place.make("orders-copy")
    env, rng, sent = {"RABBIT": place.uri}, random.Random(rounds), 0

    def send(many: int) -> None:
        nonlocal sent
        place.send("orders", [{"n": n} for n in range(sent, sent + many)], message_id=lambda one: f"id-{one['n']}")
        sent += many

    send(2000)
    for n in range(rounds):
        with process(tmp_path, "run", "orders.py", env=env) as run:
            until(lambda run=run, n=n: _follows(tmp_path, n + 1) or run.poll() is not None, 300)
            assert run.poll() is None, (tmp_path / "said").read_text()
            end = time.monotonic() + rng.uniform(0.3, 1.5)
            while time.monotonic() < end:
                send(20)
            run.kill()
    send(20)
    with process(tmp_path, "run", "orders.py", "--once", env=env) as run:
        assert run.wait(300) == 0, (tmp_path / "said").read_text()
    files = sorted((tmp_path / "files").rglob("*.parquet"))
    kept = [row["n"] for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert sorted(kept) == list(range(sent)), "each message with an id once"
    assert place.ready("orders") == 0
    copied = place.take("orders-copy")
    places = {(one.headers["partition"], one.headers["offset"]): one.document["n"] for one in copied}
    assert sorted(places.values()) == list(range(sent)), "a repeat has the place of the first"


def _follows(folder: Path, times: int) -> bool:
    runs = (folder / "said").read_text().split("starting Spark")[1:]
    return len(runs) >= times and "\nfollowing" in runs[times - 1]
