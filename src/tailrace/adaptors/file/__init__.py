"""The file adaptor: JSON lines, CSV and Parquet; read, followed as they grow, and written."""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.file.reading import FileReader
from tailrace.adaptors.file.settings import FileSink, FileSource
from tailrace.adaptors.file.writing import FileWriter

FILE = Adaptor(
    "file",
    "files and folders of JSON lines, CSV or Parquet",
    FileReader,
    FileSource,
    FileWriter,
    FileSink,
    example='.save("file", path="./out", format="parquet")',
)
