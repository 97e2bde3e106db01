"""`tailrace topic`: create, list, describe, grow, set, delete.  Commands on records are in append.py and reading.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import HomeOption, JsonOption, SettingsOption, TopicArgument, YesOption
from tailrace.cli.shared.output import counted, print_facts, print_json, print_table, time_of
from tailrace.cli.shared.session import confirm, opened

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.log.topic import Topic

app = new_group("Topics, and the records in them.")


@app.callback()
def topics(home: HomeOption = None) -> None:
    """Topics, and the records in them."""


def described(home: Home, topic: Topic) -> dict[str, Any]:
    """Return a topic as --json prints it."""
    import msgspec

    from tailrace.log.groups.group import groups_of

    ends = topic.ends()
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": topic.partitions,
        "created": topic.described.created,
        "records": sum(end - floor for floor, end in ends.values()),
        "compacted": any(one.compact for _, _, one in topic.history()),
        "settings": msgspec.to_builtins(topic.settings),
        "offsets": [{"partition": q, "floor": floor, "next": end} for q, (floor, end) in ends.items()],
        "groups": home.store.run(groups_of(topic.id)),
    }


@command(app)
def create(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic's name.")],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            parser=values.whole,
            help="The number of partitions; `topic grow` adds more later.",
        ),
    ] = 1,
    settings: SettingsOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic, and the home if there is none yet.

    Examples:

        tailrace topic create orders --partitions 8
        tailrace topic create clicks --set retention_ms=7d --set compression=zstd
    """
    with opened(home, make=True) as here:
        topic = here.create_topic(name, partitions, **values.settings(settings))
        if as_json:
            print_json(described(here, topic))
        else:
            print(f"made topic {name!r} with {counted(partitions, 'partition')}")


@command(app, "list")
def list_topics(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all topics.

    Examples:

        tailrace topic list
        tailrace topic list --json | jq -r '.[].name'
    """
    from tailrace.log.catalog import overview

    with opened(home) as here:
        found = here.store.run(overview())
    rows = [(name, head.partitions, sum(head.next.values()) - sum(head.floor.values())) for name, head in found]
    if as_json:
        print_json([dict(zip(("name", "partitions", "records"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("topic", "partitions", "records"), rows)
    else:
        print("no topics yet; `tailrace topic create NAME` makes one")


@command(app)
def describe(topic: TopicArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a topic: its settings, the offsets of each partition, its groups.

    Examples:

        tailrace topic describe orders
        tailrace topic describe orders --json | jq .settings.retention_ms
    """
    with opened(home) as here:
        about = described(here, here.topic(topic))
    if as_json:
        print_json(about)
        return
    shown = {"topic": about["name"], "id": about["id"], "created": time_of(about["created"])}
    most = "at most " if about["compacted"] else ""  # compaction leaves gaps, which this number includes
    records = ("records", f"{most}{about['records']:,}")
    print_facts([*shown.items(), records, ("groups", ", ".join(about["groups"]) or "none")])
    print()
    print_table(("setting", "value"), ((name, _setting(value)) for name, value in about["settings"].items()))
    print()
    rows = [(o["partition"], o["floor"], o["next"], o["next"] - o["floor"]) for o in about["offsets"]]
    print_table(("partition", "floor", "next", f"{most}records"), rows)


def _setting(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


@command(app)
def grow(
    topic: TopicArgument,
    partitions: Annotated[
        int, typer.Argument(metavar="PARTITIONS", parser=values.whole, help="The number of partitions that it gets.")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a topic more partitions, while others write and read.

    Records stay where they are. From now on keys may belong to other partitions; a group reads past this point once it
    has committed all records before it, so the order of each key holds. A topic cannot have fewer partitions again.

    Examples:

        tailrace topic grow orders 24
        tailrace topic grow orders 24 --json | jq .partitions
    """
    with opened(home) as here:
        chosen = here.topic(topic)
        before = chosen.partitions
        grown = chosen.grow(partitions)
        if as_json:
            print_json({**described(here, chosen), "grown": grown})
        elif grown:
            print(f"topic {topic!r} has {counted(partitions, 'partition')}, and had {before}")
        else:
            print(f"topic {topic!r} has {counted(partitions, 'partition')} already; nothing was changed")


@command(app, "set")
def set_settings(
    topic: TopicArgument,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="The settings to change.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a topic; what is stored already is not touched.

    Durations may be written 30s, 15m, 12h, 7d, sizes 64KiB, 16MiB, 1GiB; null takes a limit away.

    Examples:

        tailrace topic set orders retention_ms=30d
        tailrace topic set orders compression=zstd max_record_bytes=64MiB
        tailrace topic set orders retention_ms=null
    """
    import msgspec

    with opened(home) as here:
        now = msgspec.to_builtins(here.topic(topic).configure(**values.settings(settings)))
    if as_json:
        print_json(now)
    else:
        print_table(("setting", "value"), ((name, _setting(value)) for name, value in now.items()))


@command(app)
def delete(topic: TopicArgument, yes: YesOption = False, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Delete a topic and every record in it, for good.

    Examples:

        tailrace topic delete orders
        tailrace topic delete orders --yes
    """
    with opened(home) as here:
        records = sum(end - floor for floor, end in here.topic(topic).ends().values())
        confirm(f"Delete topic {topic!r} and its {counted(records, 'record')}, for good?", yes)
        here.delete_topic(topic)
    if as_json:
        print_json({"deleted": topic, "records": records})
    else:
        print(f"deleted topic {topic!r} with {counted(records, 'record')}")
