"""Shared units hold in every schedule of a small scenario, and each of their rules is needed."""

from __future__ import annotations

import pytest

from tests.model.units.protocol import explore

MUTANTS = {
    "shard.parent": "a child was handled before its parent was drained",
    "add.absent": "a record was committed twice",
    "commit.owner": "a commit by a past owner counts",
    "commit.epoch": "a commit by a past owner counts",
    "commit.position": "a record was committed twice",
    "text.ended_too_soon": "a unit ended before its records were handled",
}


def test_the_protocol_holds_in_every_schedule() -> None:
    assert explore() == ("", True)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    assert explore(frozenset({mutant}))[0] == MUTANTS[mutant]
