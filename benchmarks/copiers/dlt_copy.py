"""dlt, with its Arrow backend: run by the Python of the peers, `python dlt_copy.py FROM INTO FOLDER`."""

from __future__ import annotations

import sys

import dlt
from dlt.sources.sql_database import sql_table


def main() -> None:
    """The table, by COPY of CSV files into a database, or into Parquet files."""
    source, into, folder = sys.argv[1:]
    to_table = into.startswith("postgresql://")
    destination = dlt.destinations.postgres(into) if to_table else dlt.destinations.filesystem(f"file://{into}")
    pipeline = dlt.pipeline("bench", destination=destination, dataset_name="copied", pipelines_dir=folder)
    through = source.replace("postgresql://", "postgresql+psycopg2://")
    table = sql_table(credentials=through, table="items", schema="public", backend="pyarrow", chunk_size=50_000)
    pipeline.run(table, write_disposition="replace", loader_file_format="csv" if to_table else "parquet")


if __name__ == "__main__":
    main()
