"""The file adaptor: reads, follows and writes JSON lines, CSV and Parquet.

Read in this order: settings, names.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.file.settings import FileSink, FileSource
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.file.source.reader import FileReader

FILE = Adaptor(
    "file",
    "files and folders of JSON lines, CSV or Parquet",
    FileReader,
    FileSource,
    FileWriter,
    FileSink,
    example='.save("file", path="./out", format="parquet")',
)
