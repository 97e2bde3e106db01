"""The queue: push messages, and handle each once, in the order of its key.

python examples/queue_emails.py [HOME]

to ada: welcome
to ada: your order
0 left
"""

# ruff: noqa: T201

import sys

import tailrace

with tailrace.open(sys.argv[1] if len(sys.argv) > 1 else "./data") as home:
    emails = home.queue("emails")
    emails.push({"to": "ada", "about": "welcome"}, shard_key="ada")
    emails.push({"to": "ada", "about": "your order"}, shard_key="ada")

    def send(envelope):
        """Handle one message; a handler that raises gets the message again, later."""
        print(f"to {envelope.message['to']}: {envelope.message['about']}")

    with emails.tail(send):
        emails.drain()
    print(emails.stats().backlog, "left")
