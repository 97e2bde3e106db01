"""Runs that end at any point, in place and without Spark; and that each rule they live by is needed."""

from __future__ import annotations

import pytest

from tests.pipeline.lives import Wrong, explore
from tests.pipeline.mutants import MUTANTS, Mutant


def test_a_run_may_end_anywhere() -> None:
    assert explore(range(2), stride=9) > 30


@pytest.mark.soak
def test_a_run_may_end_anywhere_for_long() -> None:
    explore(range(100, 130))


@pytest.mark.parametrize(("mutant", "stride"), MUTANTS.values(), ids=MUTANTS.keys())
def test_without_one_rule_something_is_lost_doubled_or_late(mutant: Mutant, stride: int) -> None:
    with mutant(), pytest.raises(Wrong):
        explore(range(200), stride)
