"""Programs that copy a table of a PostgreSQL: into a table of another database, or into Parquet.

Each is run in a process of its own, as people run it; see `benchmarks.pipeline_copy`."""
