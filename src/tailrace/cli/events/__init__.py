"""`tailrace events`: streams of events, the feed of all of them, and the checkpoints of its consumers.

Read in this order: event_streams, feed, checkpoint.
"""

import typer


def group() -> typer.Typer:
    """Return the group with all its commands."""
    from tailrace.cli.events import checkpoint, event_streams, feed

    feed.register(event_streams.app)
    checkpoint.register(event_streams.app)
    return event_streams.app
