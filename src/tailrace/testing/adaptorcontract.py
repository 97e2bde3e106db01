"""The contracts of adaptors, in one place: ReaderContract for sources, WriterContract for sinks."""

from tailrace.testing.readercontract import ChangingSource, ReaderContract, SourceUnderTest
from tailrace.testing.writercontract import SinkUnderTest, WriterContract

__all__ = ["ChangingSource", "ReaderContract", "SinkUnderTest", "SourceUnderTest", "WriterContract"]
