"""`tailrace events checkpoint`: groups of the feed's consumers are shown, reset and put elsewhere."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.events import Event
from tests.cli.runs import Cli


def handled(cli: Cli) -> int:
    """How many events a consumer of the group is given until it has caught up."""
    with tailrace.open(cli.home) as home:
        return home.events().feed().consumer("mailer", lambda event: None).run(60, until_caught_up=True).records


@pytest.fixture
def shop(cli: Cli) -> Cli:
    with tailrace.open(cli.home) as home:
        for n in range(3):
            home.events().stream("Cart-1").append([Event("Added", b"%d" % n)])
    assert handled(cli) == 3
    return cli


def test_groups_are_shown(shop: Cli) -> None:
    (found,) = shop("events", "checkpoint", "show", "--json").json
    (part,) = found["partitions"]
    assert (found["group"], part["behind"], part["error"], part["member"]) == ("mailer", 0, "", None)
    assert part["checkpoint"] == part["tail"] > 0
    assert "mailer" in shop("events", "checkpoint", "show", "mailer").out
    assert "no group 'nobody'" in shop.fails("events", "checkpoint", "show", "nobody").err
    assert "there are: mailer" in shop.fails("events", "checkpoint", "show", "maler").err


def test_a_group_is_reset_and_put_elsewhere(shop: Cli) -> None:
    tail = shop("events", "checkpoint", "show", "--json").json[0]["partitions"][0]["tail"]
    assert shop("events", "checkpoint", "reset", "mailer", "--yes", "--json").json["group"] == "mailer"
    assert handled(shop) == 3
    assert (
        shop("events", "checkpoint", "override", "mailer", "0", "--yes", "--json").json["partitions"][0]["checkpoint"]
        == 0
    )
    assert handled(shop) == 3
    shop("events", "checkpoint", "override", "mailer", str(tail), "--yes")
    assert handled(shop) == 0


def test_bad_checkpoints(shop: Cli) -> None:
    assert "beyond the tail" in shop.fails("events", "checkpoint", "override", "mailer", "999", "--yes").err
    shop.fails("events", "checkpoint", "override", "mailer", "-1", "--yes", code=2)
    shop.fails("events", "checkpoint", "override", "mailer", "many", "--yes", code=2)
    shop.fails("events", "checkpoint", "override", "nobody", "0", "--yes")
    assert handled(shop) == 0
