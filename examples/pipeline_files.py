"""A pipeline: a folder of CSV files, kept as Parquet by Spark.

python examples/pipeline_files.py [FOLDER]

1 tea
2 mug
"""

# ruff: noqa: T201

import sys
from pathlib import Path

import pyarrow.parquet as pq

import tailrace
import tailrace.spark
from tailrace.pipeline.run.runner import run

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "./shop")
(folder / "in").mkdir(parents=True, exist_ok=True)
(folder / "in" / "items.csv").write_text("id,name\n1,tea\n2,mug\n")

shop = (
    tailrace.pipeline("shop", home=folder / "home")
    .source("file", path=str(folder / "in"), keys=["id"])
    .save("file", path=str(folder / "out"), keep="state")
)
run(shop.definition(), tailrace.spark.session(), once=True)  # without `once` it goes on following the files

(items,) = (folder / "out").glob("items*/**/*.parquet")
for row in sorted(pq.read_table(items).to_pylist(), key=lambda row: row["id"]):
    print(row["id"], row["name"])
