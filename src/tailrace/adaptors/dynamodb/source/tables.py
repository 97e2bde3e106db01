"""Tables: lists those that can be read, and says what a table lacks to be followed."""

from __future__ import annotations

from tailrace.adaptors.contract import Namespace
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.errors import NotReady

STATE = "tailrace-state"
"""The default table of sinks' state, which is not data to be read."""
CARRYING = ("new", "both")
"""The views whose changes carry the item after the change."""
_SWITCH = "aws dynamodb update-table --table-name {} --stream-specification "
ON, OFF = "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES", "StreamEnabled=false"


def listing(service: DynamoService) -> list[Namespace]:
    """Return every table of the region, except the default table of sinks' state."""
    return [Namespace(name) for name in service.tables() if name != STATE]


def lacking(table: TableDescription) -> str:
    """Return why a table cannot be followed, with the command that corrects it; "" if it can be followed."""
    switch = _SWITCH.format(table.name)
    if table.view is None:
        return f"the table {table.name} has no stream, so its changes cannot be followed; `{switch}{ON}` switches it on"
    if table.view not in CARRYING:
        return (
            f"the stream of the table {table.name} does not carry items as they are after a change; `{switch}{OFF}`, "
            f"and then `{switch}{ON}`, gives it one that does"
        )
    return ""


def check_followed(table: TableDescription) -> None:
    """Raise `NotReady` if a table cannot be followed."""
    if told := lacking(table):
        raise NotReady(f"{told}. follow = false copies once, without that")
