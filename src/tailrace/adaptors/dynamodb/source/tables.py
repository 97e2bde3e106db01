"""Tables: which can be read, and what one lacks to be followed."""

from __future__ import annotations

from tailrace.adaptors.contract import Namespace
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.errors import NotReady

STATE = "tailrace-state"
"""The table of sinks' own items, unless they are told another: no one's data."""
CARRYING = ("new", "both")
"""Views whose changes carry the item as it is after them."""
_SWITCH = "aws dynamodb update-table --table-name {} --stream-specification "
ON, OFF = "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES", "StreamEnabled=false"


def listing(service: DynamoService) -> list[Namespace]:
    """Every table of the region."""
    return [Namespace(name) for name in service.tables() if name != STATE]


def lacking(table: TableDescription) -> str:
    """Why a table cannot be followed, with the command that mends it; "" if it can."""
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
    """Refuse a table that cannot be followed."""
    if told := lacking(table):
        raise NotReady(f"{told}. follow = false copies once, without that")
