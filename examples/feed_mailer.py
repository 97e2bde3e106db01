"""The feed: every event of the store in one order, handled by a group that remembers how far it is.

python examples/feed_mailer.py [HOME]

mail about Order-1 Paid
mail about Order-2 Paid
"""

# ruff: noqa: T201

import sys

import tailrace
from tailrace.events import Event

with tailrace.open(sys.argv[1] if len(sys.argv) > 1 else "./data") as home:
    events = home.events()
    for number in (1, 2):
        events.stream(f"Order-{number}").append([Event("Placed"), Event("Paid")], expected=0)

    def mail(event):
        """Called for each event; the checkpoint is stored behind those that were handled."""
        if event.type == "Paid":
            print("mail about", event.stream, event.type)

    events.feed().consumer("mailer", mail).run(until_caught_up=True)
