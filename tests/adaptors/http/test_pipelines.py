"""Lines of a file posted to a receiver that refuses some, while the run is killed: each comes, and what is refused is a
dead letter."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.pipeline.deliver.dead_letters import dead_letters
from tests.adaptors.http.receiver import TAKEN, Answer, Request, receiving
from tests.pipeline.runs import process, until

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(900)]
REFUSED = {7, 60}
PIPELINE = """
import tailrace

pipeline = (
    tailrace.pipeline("orders", home="{home}/home", partitions=3)
    .source("file", path="{home}/orders.jsonl", keys=["id"])
    .save("http", name="hook", url="${{HOOK}}", secret="not-a-secret", requests=8, patience=0.5, on_error="dead_letter")
)
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
def test_lines_to_a_receiver(tmp_path: Path, rounds: int) -> None:
    rng, made = random.Random(rounds), 0

    def write(many: int) -> None:
        nonlocal made
        with (tmp_path / "orders.jsonl").open("a") as file:
            file.writelines(json.dumps({"id": n % 50, "n": n}) + "\n" for n in range(made, made + many))
        made += many

    def behaviour(n: int, request: Request) -> Answer:
        if any(message["data"]["n"] in REFUSED for message in request.messages):
            return Answer(422, body=b"no sevens")
        return Answer(503) if n % 97 == 30 else Answer(cut=True) if n % 89 == 36 else TAKEN

    (tmp_path / "orders.py").write_text(PIPELINE.format(home=tmp_path))
    write(100)
    with receiving(behaviour) as receiver:
        env = {"HOOK": receiver.url}
        for _ in range(rounds):
            before = len(receiver.requests)
            with process(tmp_path, "run", "orders.py", env=env) as run:
                until(lambda run=run, before=before: len(receiver.requests) > before or run.poll() is not None, 400)
                assert run.poll() is None, (tmp_path / "said").read_text()
                end = time.monotonic() + rng.uniform(0.1, 0.7)
                while time.monotonic() < end:
                    write(5)
                    time.sleep(0.1)
                run.kill()
        write(20)
        with process(tmp_path, "run", "orders.py", "--once", env=env) as run:
            assert run.wait(400) == 0, (tmp_path / "said").read_text()
        seen = [message["data"] for message in receiver.once().values()]
        repeats = len(receiver.messages()) - len(seen)
    assert {one["n"] for one in seen} == set(range(made)) - REFUSED, f"with {repeats} repeats"
    assert len(seen) == made - len(REFUSED), "each under a key of its own"
    for id in range(50):
        numbers = [one["n"] for one in seen if one["id"] == id]
        assert numbers == sorted(numbers), "of one document in order"
    with tailrace.open(tmp_path / "home") as home:
        buried = dead_letters(home, "orders")
    assert {letter["id"] for letter in buried} == {str(n % 50) for n in REFUSED}
    assert all("answers 422: no sevens" in letter["error"] for letter in buried)
