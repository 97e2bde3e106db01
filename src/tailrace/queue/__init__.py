"""Queues: messages that a group of consumers shares, each handled once, in the order of its key.

The files are `queue` (the queue as users hold it); `existence`, `pushing`, `dedup` and `delayed` (how messages come
in); `window` (which messages are done; pure) and `shard` (the guarded writes of a window); `lanes` (which message may
run; pure), `desk` (what a consumer has in hand), `fetcher`, `acknowledgements` and `consumer` (one member's rounds);
`handlers`, `run` and `worker` (threads); `lending` (loans to HTTP clients), `transaction` (exactly once),
`dead_letters`, `replay`, `supervisor`, `stats`, `explain` and `deletion`.  Users import `Queue`, `Message`, `Envelope`,
`Worker` from here.  The protocol's model is in tests/model/queue.

Used from outside: queue, envelope, transaction, stats, lending, dead_letters, settings.
Read in this order: queue, existence, envelope, pushing, dedup, delayed, transaction, settings, worker, handlers, run,
lending, consumer, desk, fetcher, acknowledgements, lanes, shard, window, dead_letters, supervisor, replay, stats,
explain, aio, diary, deletion.
"""

from tailrace.queue.dead_letters import DeadLetter
from tailrace.queue.envelope import Codec, Envelope
from tailrace.queue.pushing import Message, Pushed
from tailrace.queue.queue import Queue
from tailrace.queue.stats import Stats
from tailrace.queue.worker import Worker

__all__ = ["Codec", "DeadLetter", "Envelope", "Message", "Pushed", "Queue", "Stats", "Worker"]
