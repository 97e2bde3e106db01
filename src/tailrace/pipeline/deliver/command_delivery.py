"""Command delivery: carries commands out in a sink, or passes those that the sink or the branch cannot carry out.

A sink's writer lists the commands that it can carry out.  The pipeline passes the others and leaves the sink unchanged:
a dropped table stays there, rows under an old name stay under it.  Each is logged, and the status shows the last one.
"""

from __future__ import annotations

import logging
import re

from tailrace.adaptors.contract import Command, Who, Writer
from tailrace.pipeline.deliver.delivery import Branch
from tailrace.pipeline.functions.namespaces import destination

_log = logging.getLogger("tailrace")


def carry_out(branch: Branch, writer: Writer, namespace: str, command: Command, who: Who) -> str:
    """Have a sink carry out a command, if its branch wants the namespace; returns a message if the command is passed,
    else ""."""
    if not re.search(branch.namespace, namespace):
        return ""
    if command.name not in writer.commands:
        return _passed(branch, namespace, command, f"its sink, {branch.adaptor}, has no such command")
    if command.to and not re.search(branch.namespace, command.to):
        return _passed(branch, namespace, command, "the branch does not have the new name")
    there = destination(branch.functions, namespace)
    to = destination(branch.functions, command.to) if command.to else ""
    writer.command(there, command._replace(to=to), who)
    return ""


def is_wanted(branch: Branch, namespace: str) -> bool:
    """Whether a branch wants a namespace."""
    return re.search(branch.namespace, namespace) is not None


def _passed(branch: Branch, namespace: str, command: Command, why: str) -> str:
    told = f"{command} of {namespace} was passed: {why}; the sink stays as it is"
    _log.warning("the writer %r: %s", branch.name, told)
    return told
