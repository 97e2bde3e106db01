"""`tailrace topic cost`: what a topic costs in the cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.options import HomeOption, JsonOption
from tailrace.cli.shared.output import print_facts, print_json, print_table, size_of
from tailrace.cli.shared.progress import Bar
from tailrace.cli.shared.session import note, opened

GIB = 1 << 30

if TYPE_CHECKING:
    from tailrace.admin.cost import Cost, Estimate, TrafficCost


def cost(
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="The topic whose partitions and size of records to take.")
    ] = "",
    per_day: Annotated[
        str, typer.Option("--per-day", metavar="SIZE", help="The bytes that are appended in a day.")
    ] = "",
    record: Annotated[
        str, typer.Option("--record", metavar="SIZE", help="The size of a record; by default as in the topic.")
    ] = "",
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="The number of partitions, if no topic is given.")
    ] = 8,
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="A TOML file with other prices.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a topic costs on S3 and DynamoDB: requests and dollars for a GiB, a day, and when nothing happens.

    The topic's pages say how much was appended in the day before its newest record.  To count the requests, the command
    appends, reads and consumes on a home in memory that meters them.  How long a producer lingers decides how many
    commits a day has, and with them the bill.

    Examples:

        tailrace topic cost
        tailrace topic cost orders --per-day 20GiB
        tailrace topic cost --record 300B --prices my-prices.toml
    """
    from tailrace.admin import cost as costs
    from tailrace.admin.traffic import traffic

    asked = costs.prices(prices)
    size, lately = values.size(record) if record else None, None
    volume = values.size(per_day) if per_day else 0
    if topic:
        with opened(home) as here:
            chosen = here.topic(topic)
            partitions, size = chosen.partitions, size or costs.mean_record_size(chosen)
            lately = here.store.run(traffic(chosen.log))
    volume = volume or (lately.bytes_a_day if lately is not None else GIB)
    note("metering what a topic asks for, on a home in memory: some seconds")
    with Bar("metering", costs.STEPS, "steps") as bar:
        found = costs.estimate(partitions, size or 1024, volume, asked, lately, bar.advance)
    if as_json:
        print_json({"prices": asked, **as_builtins(found)})
    else:
        show(found, asked)


def as_builtins(found: Estimate) -> dict[str, Any]:
    """Return an estimate of costs as --json prints it."""
    import msgspec

    built: dict[str, Any] = msgspec.to_builtins(found)
    return built


def show(found: Estimate, asked: dict[str, Any]) -> None:
    """Print an estimate of costs for people."""
    print_facts(
        [
            ("topic", f"{found.partitions} partitions, records of {size_of(found.record_bytes)}"),
            ("lately", _lately(found.real)),
            ("prices", f"{asked['region']}, {asked['date']}; storage and traffic are not in it"),
        ]
    )
    print()
    rows = [
        ("append 1 GiB in full chunks", *_cells(found.full)),
        ("read 1 GiB of them", *_cells(found.reading)),
        ("a day of an idle producer", *_cells(found.idle_producer)),
        ("a day of an idle consumer", *_cells(found.idle_consumer)),
    ]
    if found.real is not None:
        rows.insert(0, ("a day of what came lately", *_cells(found.real.day)))
    print_table(("what", "requests", "dollars"), rows)
    print()
    own = "by itself 0.1 to 1 s, longer when less comes"
    print(f"{size_of(found.per_day)} a day, by how long a producer lingers ({own}):")
    lingers = [
        (f"{rate.linger:g} s", size_of(rate.commit_bytes), *_cells(rate.day), f"{rate.gib.dollars:,.4f}")
        for rate in found.rates
    ]
    print_table(("linger", "commit", "requests a day", "dollars a day", "dollars a GiB"), lingers)


def _lately(real: TrafficCost | None) -> str:
    if real is None:
        return "no topic, or less than a minute of records in its newest day"
    found = real.traffic
    came = f"{found.records:,} records in {found.chunks:,} chunks of {size_of(found.chunk_bytes)}"
    return f"{came}, within {found.seconds / 3600:,.1f} h"


def _cells(cost: Cost) -> tuple[int, str]:
    return round(cost.total), f"{cost.dollars:,.4f}"


def register(app: typer.Typer) -> None:
    """Add `tailrace topic cost`."""
    command(app)(cost)
