"""The queues under test, each with what it promises when it acknowledges."""

from functools import partial

from benchmarks.contract import in_folder
from benchmarks.queues import ours, persistqueue, postgres, procrastinate, rabbitmq, redis
from benchmarks.queues.contract import Contestant

OURS = Contestant(
    name="tailrace",
    promise="synced",
    how="push(), push_many(); a worker with one handler thread, from joining on",
    serve=in_folder,
    connect=ours.connect,
    peer=False,
)
POSTGRES = Contestant(
    name="PostgreSQL, SKIP LOCKED",
    promise="synced: fsync, synchronous_commit on",
    how="one INSERT, one DELETE … RETURNING for each batch",
    serve=postgres.serve,
    connect=postgres.connect,
)
POSTGRES_WAKING = Contestant(
    name=POSTGRES.name,
    promise=POSTGRES.promise,
    how="the same with NOTIFY and LISTEN",
    serve=postgres.serve,
    connect=partial(postgres.connect, kind=postgres.PostgresWaking),
)
REDIS = Contestant(
    name="Redis Streams",
    promise="synced: appendfsync always",
    how="MULTI of XADDs; XREADGROUP with XACK of the batch before",
    serve=redis.serve,
    connect=redis.connect,
)
RABBITMQ = Contestant(
    name="RabbitMQ, quorum queue",
    promise="synced: confirms; acknowledgements are not confirmed",
    how="publishes, then their confirms; two batches prefetched, basic_ack(multiple)",
    serve=rabbitmq.serve,
    connect=rabbitmq.connect,
)
PERSIST_QUEUE = Contestant(
    name="persist-queue",
    promise="synced: SQLite in WAL, synchronous=FULL",
    how="put() and get() with one task_done() for each batch",
    serve=in_folder,
    connect=persistqueue.connect,
)
PROCRASTINATE = Contestant(
    name="procrastinate",
    promise=POSTGRES.promise,
    how="defer(), batch_defer(); as many tasks at once as a batch has messages",
    serve=procrastinate.serve,
    connect=procrastinate.connect,
)
CONTESTANTS = [OURS, POSTGRES, REDIS, RABBITMQ, PERSIST_QUEUE, PROCRASTINATE]
SHARED = [OURS, POSTGRES, REDIS, RABBITMQ, PROCRASTINATE]
"""Those that several consumers can share: persist-queue has one."""
WAITING = [OURS, POSTGRES_WAKING, REDIS, RABBITMQ, PROCRASTINATE]
"""Those that wake a consumer in another process."""
