"""Topics of this home or another one, as the source and the sink of a pipeline.

Read in this order: settings, names, homes.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.topic.settings import TopicSink, TopicSource
from tailrace.adaptors.topic.sink.writer import TopicWriter
from tailrace.adaptors.topic.source.reader import TopicReader

TAILRACE = Adaptor(
    "tailrace",
    "topics of a tailrace home",
    TopicReader,
    TopicSource,
    TopicWriter,
    TopicSink,
    example='.save("tailrace", home="./.tailrace", topic="changes")',
)
