"""Runs that end at any point, in place and without Spark; and that each rule they live by is needed."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tailrace.pipeline.deliver import batch
from tests.pipeline.interrupted_runs import Wrong, explore
from tests.pipeline.mutants import MUTANTS, Mutant


def test_a_run_may_end_anywhere() -> None:
    assert explore(range(2), stride=9) > 30


def test_partitions_may_come_to_a_command_at_different_times() -> None:
    """A batch has one record of each: what is before the command in one partition may be delivered long after it is
    met in another."""
    with patch.object(batch, "MAX_RECORDS_PER_PARTITION", 1):
        assert explore((1, 3), stride=61) > 6


@pytest.mark.soak
def test_a_run_may_end_anywhere_for_long() -> None:
    explore(range(100, 130))


@pytest.mark.parametrize(("mutant", "stride"), MUTANTS.values(), ids=MUTANTS.keys())
def test_without_one_rule_something_is_lost_doubled_or_late(mutant: Mutant, stride: int) -> None:
    with mutant(), pytest.raises(Wrong):
        explore(range(200), stride)
