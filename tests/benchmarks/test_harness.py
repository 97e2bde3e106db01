"""How a question is asked: in turn, on warm sides, and with every failure in the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.harness import Absent, Figure, Figures, Question, Run, Side, Target, Wrong, ask, expect
from benchmarks.load import Load, fingerprint
from benchmarks.report import rows, save, section, verdicts

RATE = Figure("records/s")


def side(name: str, rates: list[float | Exception], calls: list[str], *, peer: bool = False) -> Side:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Run]:
        assert folder.is_dir()
        left = iter(rates)

        def run() -> Figures:
            calls.append(name)
            rate = next(left)
            if isinstance(rate, Exception):
                raise rate
            return {RATE.name: rate}

        yield run

    return Side(name, "as told", opened, peer)


def question(*sides: Side, targets: list[Target] | None = None) -> Question:
    return Question("rate", "rates", "Told.", sides, [RATE], sides[0].name, targets or [], rounds=3)


def quiet(_: str) -> None:
    pass


def test_sides_take_turns_after_a_warm_up_that_does_not_count(tmp_path: Path) -> None:
    calls: list[str] = []
    results = ask(question(side("a", [9, 1, 2, 6], calls), side("b", [9, 4, 4, 5], calls)), tmp_path, quiet)
    assert calls == ["a", "b"] * 4
    assert (results.of("a", RATE.name), results.of("b", RATE.name)) == (2, 4)


def test_a_side_that_fails_stays_in_the_table_with_its_reason(tmp_path: Path) -> None:
    never, later = RuntimeError("no such server"), Wrong("acknowledged: 9, not 10")
    asked = question(side("a", [1] * 4, []), side("b", [never], []), side("c", [1, 1, later], []))
    results = ask(asked, tmp_path, quiet)
    cells = {line[0]: line for line in rows(asked, results)[1:]}
    assert cells["a"] == ["a", "1 (1 … 1)", "1.00", "as told"]
    assert cells["b"] == ["b", "failed", "-", "RuntimeError: no such server"]
    assert cells["c"] == ["c", "failed", "-", "Wrong: acknowledged: 9, not 10"]


def test_one_that_is_stopped_has_no_result(tmp_path: Path) -> None:
    """Else a run that was stopped would stand in RESULTS.md as one in which everything failed."""

    @contextlib.contextmanager
    def opened(_: Path) -> Iterator[Run]:
        def run() -> Figures:
            try:
                raise SystemExit("stopped")
            finally:
                raise RuntimeError("the server is gone, too")

        yield run

    with pytest.raises(SystemExit, match="stopped"):
        ask(question(Side("a", "as told", opened)), tmp_path, quiet)


def test_a_failed_side_is_not_measured_again(tmp_path: Path) -> None:
    calls: list[str] = []
    ask(question(side("a", [1, RuntimeError("gone"), 1, 1], calls)), tmp_path, quiet)
    assert calls == ["a", "a"]


def test_the_best_peer_is_the_best_of_those_that_promise_as_much(tmp_path: Path) -> None:
    sides = [side("a", [8] * 4, []), side("b", [2] * 4, [], peer=True), side("c", [4] * 4, [], peer=True)]
    results = ask(question(*sides), tmp_path, quiet)
    assert results.best_peer(RATE) == 4
    assert results.best_peer(Figure(RATE.name, more=False)) == 2


def test_targets_say_met_missed_or_not_measured(tmp_path: Path) -> None:
    targets = [
        Target("at least 2", lambda results: results.of("a", RATE.name), 2),
        Target("at least 9", lambda results: results.of("a", RATE.name), 9),
        Target("at most 3", lambda results: results.of("a", RATE.name), 3, at_most=True),
        Target("b", lambda results: results.of("b", RATE.name), 1),
    ]
    asked = question(side("a", [2] * 4, []), side("b", [OSError("full")], [], peer=True), targets=targets)
    assert verdicts(targets, ask(asked, tmp_path, quiet)) == [
        "met: at least 2; measured 2.00",
        "MISSED: at least 9; measured 2.00",
        "met: at most 3; measured 2.00",
        "not measured: b (b failed)",
        "peers that failed, and so are not compared: b",
    ]


def test_no_peer_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        ask(question(side("a", [2] * 4, [])), tmp_path, quiet).best_peer(RATE)


def test_a_section_replaces_its_own_and_no_other(tmp_path: Path) -> None:
    page, machine = tmp_path / "RESULTS.md", {"CPU": "two cores"}
    asked = question(side("a", [2] * 4, []))
    text = section(asked, ask(asked, tmp_path / "1", quiet), machine)
    save(text.replace("## rate", "## other"), page, ["rate", "other"])
    save(text.replace("2 (2 … 2)", "stale figure"), page, ["rate", "other"])
    save(text, page, ["rate", "other"])
    written = page.read_text()
    assert "stale figure" not in written
    assert written.index("## rate: rates") < written.index("## other: rates")
    assert written.count("| a | 2 (2 … 2) | 1.00 | as told |") == 2


def test_every_form_of_a_load_holds_the_same_bytes() -> None:
    load = Load(40_000).built()
    arrow = [pair for batch in load.batches for pair in zip(*(column.to_pylist() for column in batch), strict=True)]
    assert arrow == list(load.pairs())
    assert b"".join(load.blocks) == b"".join(key + value for key, value in load.pairs())
    assert sum(map(len, load.blocks)) == load.size
    assert fingerprint(reversed(arrow)) == fingerprint(load.pairs())
    assert fingerprint(arrow[1:] + arrow[1:2]) != fingerprint(load.pairs())


def test_expect_names_what_is_wrong() -> None:
    expect("count", 1, 1)
    with pytest.raises(Wrong, match="count: 1, not 2"):
        expect("count", 1, 2)
