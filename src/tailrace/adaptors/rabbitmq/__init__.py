"""RabbitMQ, as a source (queues at least once, streams exactly once) and as a sink (with confirms, at least once).

Read in this order: settings, broker, errors.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.rabbitmq.settings import RabbitSink, RabbitSource
from tailrace.adaptors.rabbitmq.sink.writer import RabbitWriter
from tailrace.adaptors.rabbitmq.source.reader import RabbitReader

adaptor = Adaptor(
    name="rabbitmq",
    about="RabbitMQ 3.10 and newer: queues read at least once, each message with an id once; streams and super streams "
    "exactly once, by offset; written with confirms, at least once, each message with an id of its own",
    reader=RabbitReader,
    reader_settings=RabbitSource,
    writer=RabbitWriter,
    writer_settings=RabbitSink,
    limits="not carried: transactions of AMQP, truncates into a queue; a queue that is made again while nothing runs "
    "is not noticed (docs/guide/rabbitmq.md)",
    example='uri = "${SHOP_RABBIT}"  # amqp://user:password@host:5672/vhost\nqueues = ["orders"]',
)
