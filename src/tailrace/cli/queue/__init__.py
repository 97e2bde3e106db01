"""`tailrace queue`: queues, their messages, and the processes that handle the messages.

Read in this order: queues, stats, workers, dead_messages.
"""

import typer


def group() -> typer.Typer:
    """Return the group with all its commands, in reading order."""
    from tailrace.cli.queue import dead_messages, queues, stats, workers

    for register in (stats.register, workers.register, dead_messages.register):
        register(queues.app)
    queues.in_reading_order()
    return queues.app
