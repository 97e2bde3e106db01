"""A place for Delta tables, read by the library itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tailrace.adaptors.delta.settings import DeltaSink
from tailrace.adaptors.delta.writer import DeltaWriter
from tailrace.adaptors.lake.names import folder_of
from tests.adaptors.lake.logged import Placed, current, in_order


class PlacedDeltaWriter(Placed, DeltaWriter):
    """Gives rows the places that a pipeline gives them."""


class Place:
    """A folder or a prefix of a bucket."""

    def __init__(self, path: Path | str, options: dict[str, str] | None = None, **settings: Any) -> None:
        self.path, self.options, self.namespace = str(path), options or {}, "public.orders"
        self.settings: dict[str, Any] = {"every": 0.0, **settings}

    def writer(self, **settings: Any) -> DeltaWriter:
        """A new writer."""
        options = {"storage_options": self.options} if self.options else {}
        kind = PlacedDeltaWriter if self.changes else DeltaWriter
        return kind(DeltaSink(path=self.path, **options, **{**self.settings, **settings}))

    def table(self, namespace: str = "") -> DeltaTable:
        """A table, as others open it."""
        return DeltaTable(f"{self.path}/{folder_of(namespace or self.namespace)}", storage_options=self.options)

    def there(self, namespace: str = "") -> bool:
        """Whether there is one."""
        return DeltaTable.is_deltatable(
            f"{self.path}/{folder_of(namespace or self.namespace)}", storage_options=self.options
        )

    def rows(self, namespace: str = "") -> list[dict[str, Any]]:
        """All rows, those of a change log in the order of the commit log."""
        found = pa.table(self.table(namespace).scan()).to_pylist()
        return in_order(found) if self.changes else found

    @property
    def changes(self) -> bool:
        """Whether it is a change log."""
        return self.settings.get("keep") == "changes"

    def documents(self) -> list[dict[str, Any]]:
        """What is there now."""
        if not self.there():
            return []
        return current(self.rows()) if self.changes else self.rows()
