r"""Pipelines: copy databases, then follow them, on Spark.

pipeline = (
    tailrace.pipeline("shop")
    .source("postgres", uri="${SHOP_PG}", namespace=r"^public\.")
    .branch(namespace=r"orders$").transform(omit("card_number")).save("file", path="./out", format="parquet")
)

Read in this order: define, functions, run, ingest, deliver, runtime, operate, publish."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.pipeline.define.builder import Pipeline


class _Package(ModuleType):
    """Makes `tailrace.pipeline`, this package, also the function that begins a pipeline."""

    def __call__(self, name: str, home: str = "./.tailrace", **settings: Any) -> "Pipeline":
        from tailrace.pipeline.define.builder import pipeline

        return pipeline(name, home, **settings)


sys.modules[__name__].__class__ = _Package
