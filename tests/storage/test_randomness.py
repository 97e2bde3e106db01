"""Random bytes: fresh ones each time, in children too, and with other threads kept out while they are got."""

from __future__ import annotations

import os

import pytest

from tailrace.storage import randomness
from tailrace.storage.randomness import RANDOM_BYTES, random_bytes


def check_random() -> None:
    some = [random_bytes() for _ in range(2000)]
    assert {len(one) for one in some} == {RANDOM_BYTES}
    assert len({*some}) == len(some)
    for place in range(RANDOM_BYTES):
        assert len({one[place] for one in some}) > 200, f"byte {place} is not random"


def test_they_are_random() -> None:
    check_random()


def test_without_the_system_s_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_getrandom", None)
    check_random()


@pytest.mark.parametrize("answer", [-1, 5], ids=["interrupted", "too few"])
def test_a_call_that_gives_less_is_not_relied_on(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    monkeypatch.setattr(randomness, "_getrandom", lambda *_: answer)
    check_random()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_has_others() -> None:
    random_bytes()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, random_bytes())
        os._exit(0)
    mine = random_bytes()
    assert os.read(reader, 100) != mine
    os.wait()
    os.close(reader)
    os.close(writer)
