"""Writes the home of a small pipeline from a PostgreSQL, with its files, and packs both into a file."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import tailrace
import tailrace.spark
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.place import Place
from tests.servers.postgres import postgres


def main(target: Path) -> None:
    """Copy two tables, follow some changes, and pack what is there then."""
    with tempfile.TemporaryDirectory() as folder, postgres() as server, Place(server, "postgres") as source:
        source.run("CREATE TABLE orders (id int PRIMARY KEY, total numeric, note text)")
        source.run("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        source.run("INSERT INTO orders SELECT n, n * 1.5, 'note ' || n FROM generate_series(1, 20) n")
        source.run("INSERT INTO customers VALUES (1, 'ann'), (2, 'bob')")
        made = (
            tailrace.pipeline("shop", home=f"{folder}/home", partitions=2)
            .source("postgres", uri=source.uri, slot="versions", namespace=r"^public\.")
            .branch()
            .save("file", path=f"{folder}/files", name="lake")
            .definition()
        )
        spark = tailrace.spark.session("local[1]")
        Runner(made, spark).run(once=True)
        source.run("UPDATE orders SET total = 0 WHERE id <= 5; DELETE FROM customers WHERE id = 2")
        Runner(made, spark).run(once=True)
        spark.stop()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                out.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
