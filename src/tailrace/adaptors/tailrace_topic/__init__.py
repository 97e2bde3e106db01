"""The tailrace adaptor: topics of a home, this one or another, as source and as sink."""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.tailrace_topic.reading import TopicReader
from tailrace.adaptors.tailrace_topic.settings import TopicSink, TopicSource
from tailrace.adaptors.tailrace_topic.writing import TopicWriter

TAILRACE = Adaptor(
    "tailrace",
    "topics of a tailrace home",
    TopicReader,
    TopicSource,
    TopicWriter,
    TopicSink,
    example='.save("tailrace", home="./.tailrace", topic="changes")',
)
