"""`tailrace group`: consumer groups, how far they have come, and moving them."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.shared import values
from tailrace.cli.shared.command import command
from tailrace.cli.shared.command import group as new_group
from tailrace.cli.shared.options import GroupArgument, HomeOption, JsonOption, TopicOption, YesOption
from tailrace.cli.shared.output import ago, counted, print_facts, print_json, print_table
from tailrace.cli.shared.session import confirm, note, opened
from tailrace.errors import BadInput, UnknownGroup

if TYPE_CHECKING:
    from tailrace.home import Home
    from tailrace.log.groups.group import Group
    from tailrace.log.groups.lag import GroupState

app = new_group("Consumer groups, and how far they have come.")
ForceOption = Annotated[bool, typer.Option("--force", help="Go ahead even while members of the group are reading.")]


@app.callback()
def groups(home: HomeOption = None) -> None:
    """Consumer groups, and how far they have come."""


def _of(home: Home, name: str | None = None, topic: str | None = None) -> list[Group]:
    """Return the groups of a home, or only those of a name or a topic."""
    from tailrace.log.groups import group as steps

    found = [entry[:2] for entry in home.store.run(steps.groups())]
    chosen = [home.topic(t) for group, t in found if name in (None, group) and topic in (None, t)]
    names = [group for group, t in found if name in (None, group) and topic in (None, t)]
    return [steps.Group(g, t.log, t.partitions) for g, t in zip(names, chosen, strict=True)]


def _one(home: Home, name: str, topic: str | None) -> Group:
    """Return the group of a name; raise if there is none, or if several topics have one and `topic` is not given."""
    from tailrace.log.groups import group as steps

    found = _of(home, name, topic)
    if topic is not None and not found:
        chosen = home.topic(topic)
        home.store.run(steps.check_there(steps.Group(name, chosen.log, chosen.partitions)))
    if not found:
        there = ", ".join(sorted({group.name for group in _of(home)})) or "none yet"
        raise UnknownGroup(f"there is no group {name!r}; there are: {there}")
    if len(found) > 1:
        topics = ", ".join(group.log.name for group in found)
        raise BadInput(f"several topics have a group {name!r}; say which with --topic: {topics}")
    return found[0]


def _state(home: Home, group: Group) -> GroupState:
    from tailrace.log.groups.lag import describe as steps

    return home.store.run(steps(group, time.time()))


def _as_json(state: GroupState) -> dict[str, Any]:
    partitions = [
        {**asdict(p), "lag": {"records": p.lag.records, "seconds": round(p.lag.seconds, 3)}} for p in state.partitions
    ]
    return {
        "group": state.group,
        "topic": state.topic,
        "lag": {"records": state.lag.records, "seconds": round(state.lag.seconds, 3)},
        "members": [asdict(member) for member in state.members],
        "partitions": partitions,
    }


@command(app, "list")
def list_groups(topic: TopicOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List consumer groups, with their members and how far behind they are.

    Examples:

        tailrace group list
        tailrace group list --topic orders --json
    """
    with opened(home) as here:
        if topic is not None:
            here.topic(topic)
        states = [_state(here, group) for group in _of(here, topic=topic)]
    if as_json:
        print_json(
            [{"group": s.group, "topic": s.topic, "members": len(s.members), "lag": _as_json(s)["lag"]} for s in states]
        )
    elif states:
        rows = [(s.group, s.topic, len(s.members), s.lag.records, ago(s.lag.seconds)) for s in states]
        print_table(("group", "topic", "members", "lag", "oldest"), rows)
    else:
        print("no groups yet; the first consumer of a group makes it")


@command(app)
def describe(
    group: GroupArgument, topic: TopicOption = None, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Show a group: its members, and the position and lag of each partition.

    Examples:

        tailrace group describe billing
        tailrace group describe billing --topic orders --json | jq .lag.records
    """
    with opened(home) as here:
        state = _state(here, _one(here, group, topic))
    if as_json:
        print_json(_as_json(state))
        return
    print_facts([("group", state.group), ("topic", state.topic), ("lag", _lag(state))])
    print()
    names = {member.number: member.name for member in state.members}
    rows = [
        (p.partition, p.position, p.end, p.lag.records, ago(p.lag.seconds), names.get(p.owner, "-"))
        for p in state.partitions
    ]
    print_table(("partition", "position", "next", "lag", "oldest", "member"), rows)
    if state.members:
        print()
        members = [(m.name, m.host, str(m.pid), ", ".join(map(str, m.partitions)) or "-") for m in state.members]
        print_table(("member", "host", "pid", "partitions"), members)


def _lag(state: GroupState) -> str:
    behind = f"{counted(state.lag.records, 'record')}"
    return f"{behind}, the oldest {ago(state.lag.seconds)} old" if state.lag.records else "none"


@command(app)
def reset(
    group: GroupArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="POSITION", help="earliest, latest, an offset, a time, or 2h ago.")
    ],
    topic: TopicOption = None,
    force: ForceOption = False,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a group to another position, back or forward, in every partition.

    Refused while members are reading, unless --force is given: then they continue from the new position.

    Examples:

        tailrace group reset billing --to earliest
        tailrace group reset billing --to 2026-01-31T12:00:00Z --yes
    """
    from tailrace.log.groups import group as steps

    with opened(home) as here:
        chosen, position = _one(here, group, topic), values.position(to)
        confirm(f"Move group {group!r} of {chosen.log.name!r} to {to}?", yes)
        _say_if_waiting(here, chosen, force)
        moved = here.store.run(steps.reset(chosen, position, force=force))
    if as_json:
        positions = [{"partition": q, "position": offset} for q, offset in sorted(moved.items())]
        print_json({"group": group, "topic": chosen.log.name, "positions": positions})
    else:
        print_table(("partition", "position"), sorted(moved.items()))


@command(app)
def delete(
    group: GroupArgument,
    topic: TopicOption = None,
    force: ForceOption = False,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a group and its positions; the records stay.

    Examples:

        tailrace group delete billing
        tailrace group delete billing --topic orders --yes
    """
    from tailrace.log.groups import group as steps

    with opened(home) as here:
        chosen = _one(here, group, topic)
        confirm(f"Delete group {group!r} of {chosen.log.name!r}, and how far it has come?", yes)
        _say_if_waiting(here, chosen, force)
        here.store.run(steps.delete(chosen, force=force))
    if as_json:
        print_json({"deleted": group, "topic": chosen.log.name})
    else:
        print(f"deleted group {group!r} of {chosen.log.name!r}")


def _say_if_waiting(home: Home, group: Group, force: bool) -> None:
    """Say that the command may wait: it takes a while to see whether the group's members are alive."""
    from tailrace.coordination.lease import TTL_SECONDS
    from tailrace.log.groups.group import members

    if not force and home.store.run(members(group)):
        note(f"looking whether its members are alive, for up to {TTL_SECONDS:.0f} s …")
