"""Change streams: save a dataclass in a table, and read every change of it.

python examples/stream_users.py [HOME]

ann: None -> False
ann: False -> True
"""

# ruff: noqa: T201

import sys

import tailrace
from tailrace.streams import hash_key, model


@model(stream={"new", "old"})
class User:
    """A user, as an item of the table `User`."""

    name: str = hash_key()
    verified: bool = False


with tailrace.open(sys.argv[1] if len(sys.argv) > 1 else "./data") as home:
    engine = home.engine()
    engine.bind(User)
    engine.save(User("ann"))
    engine.save(User("ann", verified=True))

    stream = engine.stream(User, "trim_horizon")
    while (change := next(stream)) is not None:
        print(f"{change.new.name}: {change.old and change.old.verified} -> {change.new.verified}")
    token = stream.token  # JSON: another process can go on from here
