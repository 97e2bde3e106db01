"""The contracts of adaptors, in one place: ReaderContract for sources, WriterContract for sinks."""

from tailrace.testing.readercontract import Changing, ReaderContract, Source
from tailrace.testing.writercontract import Sink, WriterContract

__all__ = ["Changing", "ReaderContract", "Sink", "Source", "WriterContract"]
