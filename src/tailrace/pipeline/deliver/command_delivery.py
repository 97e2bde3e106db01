"""Commands on their way into a sink: which ones a branch wants, and the message about one that its sink cannot do.

A sink names the commands that it can carry out.  The pipeline passes the others, and the sink stays as it is: a dropped
table is still there, rows under an old name stay under it.  The log says so each time, the status has the last one.
"""

from __future__ import annotations

import logging
import re

from tailrace.adaptors.contract import Command, Who, Writer
from tailrace.pipeline.deliver.delivery import Branch
from tailrace.pipeline.functions.namespaces import destination

_log = logging.getLogger("tailrace")


def carry_out(branch: Branch, writer: Writer, namespace: str, command: Command, who: Who) -> str:
    """Have a sink carry out a command, if its branch has the namespace; gives what to say if the sink cannot."""
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
    """Whether a branch has a namespace."""
    return re.search(branch.namespace, namespace) is not None


def _passed(branch: Branch, namespace: str, command: Command, why: str) -> str:
    told = f"{command} of {namespace} was passed: {why}; the sink stays as it is"
    _log.warning("the writer %r: %s", branch.name, told)
    return told
