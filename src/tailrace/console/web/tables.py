"""Tables of a page, filtered, sorted and paged by the address, so that a shared link shows the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.console.web.visit import Visit

PAGE_ROWS = 50


class Column(NamedTuple):
    """A column: its title, the value that it is sorted by, and whether it is a number."""

    key: str
    title: str
    by: Callable[[Any], Any] | None = None
    """None: the table cannot be sorted by this column."""
    number: bool = False


class Table:
    """The rows that the address asks for.  `name` tells the tables of one page apart."""

    def __init__(
        self, visit: Visit, name: str, label: str, columns: Sequence[Column], rows: Sequence[Any],
        text: Callable[[Any], str] | None = None, order: str = "",
    ) -> None:  # fmt: skip
        self._visit, self.name, self.label, self.columns = visit, name, label, columns
        self.filters, self.all = text is not None, len(rows)
        self.wanted = visit.query.get(self.parameter("q"), "").strip()
        self.order = visit.query.get(self.parameter("sort"), "") or order
        found = [row for row in rows if text is None or self.wanted.lower() in text(row).lower()]
        self.found = len(found)
        column = next((one for one in columns if one.key == self.order.lstrip("-") and one.by), None)
        if column is not None and column.by is not None:
            found.sort(key=column.by, reverse=self.order.startswith("-"))
        self.pages = max(1, -(-len(found) // PAGE_ROWS))
        self.page = min(visit.whole(self.parameter("page"), 1, least=1), self.pages)
        self.rows = found[(self.page - 1) * PAGE_ROWS : self.page * PAGE_ROWS]

    def parameter(self, what: str) -> str:
        """Return the name of this table's parameter in the address."""
        return f"{self.name}.{what}" if self.name else what

    @property
    def others(self) -> Mapping[str, str]:
        """The parameters of the address that the table's filter has to keep."""
        mine = {self.parameter("q"), self.parameter("page"), "notice"}
        return {name: value for name, value in self._visit.query.items() if name not in mine}

    def sorted(self, column: Column) -> str:
        """Return how the table is sorted by a column, in the words of aria-sort."""
        if self.order.lstrip("-") != column.key:
            return "none"
        return "descending" if self.order.startswith("-") else "ascending"

    def sort_address(self, column: Column) -> str:
        """Return the address to which a click on a column's title leads; numbers begin with the largest."""
        now = self.sorted(column)
        first = f"-{column.key}" if column.number else column.key
        turned = {"none": first, "ascending": f"-{column.key}", "descending": column.key}[now]
        return self._visit.address(**{self.parameter("sort"): turned, self.parameter("page"): None})

    def page_address(self, page: int) -> str:
        """Return the address of another page of the table."""
        return self._visit.address(**{self.parameter("page"): page if page > 1 else None})
