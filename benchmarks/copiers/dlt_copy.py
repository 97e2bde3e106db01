"""dlt, with its Arrow backend: run by the Python of the peers, `python dlt_copy.py FROM INTO FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import dlt
from dlt.sources.sql_database import sql_table

ROWS_AT_ONCE = 50_000


def main() -> None:
    """The table, by COPY of CSV files into a database, or into Parquet files."""
    source, into, folder = sys.argv[1:]
    to_table = into.startswith("postgresql://")
    destination = dlt.destinations.postgres(into) if to_table else dlt.destinations.filesystem(f"file://{into}")
    pipeline = dlt.pipeline("bench", destination=destination, dataset_name="copied", pipelines_dir=folder)
    file_format = "parquet" if not to_table else None if source.startswith("mongodb://") else "csv"
    pipeline.run(table(source), write_disposition="replace", loader_file_format=file_format)


def table(source: str) -> Any:
    """What is copied."""
    if source.startswith("mongodb://"):
        return dlt.resource(documents(source), name="items")
    if source.startswith("mysql://"):
        through = source.replace("mysql://", "mysql+pymysql://")
        return sql_table(credentials=through, table="items", backend="pyarrow", chunk_size=ROWS_AT_ONCE)
    through = source.replace("postgresql://", "postgresql+psycopg2://")
    return sql_table(credentials=through, table="items", schema="public", backend="pyarrow", chunk_size=ROWS_AT_ONCE)


def documents(source: str) -> Iterator[list[dict[str, Any]]]:
    """The documents of a collection, many at a time; decimals as Python's, which dlt knows."""
    import pymongo

    with pymongo.MongoClient[dict[str, Any]](source) as client:
        found = client.get_default_database()["items"].find()
        while some := list(islice(found, ROWS_AT_ONCE)):
            yield [{**one, "total": one["total"].to_decimal()} for one in some]


if __name__ == "__main__":
    main()
