"""The log: append records, read them from the beginning, and let a consumer group share them.

python examples/log_orders.py [HOME]

read order-7 paid
read order-7 shipped
billing handled 2
"""

# ruff: noqa: T201

import sys

import tailrace

with tailrace.open(sys.argv[1] if len(sys.argv) > 1 else "./data") as home:
    orders = home.topic("orders", partitions=4)

    with orders.producer() as out:  # everything is durable when the block ends
        out.send(b"order-7", b"paid")
        out.send(b"order-7", b"shipped")  # records of one key stay in order

    for record in orders.records():
        print("read", record.key.decode(), record.value.decode())

    with orders.consumer("billing", max_seconds=2) as consumer:
        print("billing handled", sum(1 for _ in consumer))
