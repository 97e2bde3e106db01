"""`tailrace topic`: topics, and records into and out of them.

Used from outside: append, topics.
Read in this order: topics, append, sources, reading, printing, transfer, publish, cost.
"""

import typer


def group() -> typer.Typer:
    """Return the group with all its commands."""
    from tailrace.cli.home import scrub
    from tailrace.cli.topic import append, cost, publish, reading, topics, transfer

    parts = (append.register, reading.register, transfer.register, publish.register)
    for register in (*parts, scrub.register_topic, cost.register):
        register(topics.app)
    return topics.app
