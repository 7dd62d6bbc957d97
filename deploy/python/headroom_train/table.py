"""A table of records: lines of a file, or runs."""

from __future__ import annotations

import html
from typing import Any, Dict, List

from headroom_train.errors import optional_package

Record = Dict[str, Any]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{key}={_cell(part)}" for key, part in value.items()) or "-"
    return str(value)


def _flat(value: Any, name: str, into: Record) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            _flat(part, f"{name}.{key}" if name else str(key), into)
    elif isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        for index, part in enumerate(value):
            _flat(part, f"{name}.{index}", into)
    else:
        into[name] = value


class Table(List[Record]):
    """A list of records that can be displayed and converted to a pandas.DataFrame."""

    def columns(self) -> List[str]:
        """Names of all fields, in the order in which they first occur."""
        return list(dict.fromkeys(name for record in self for name in record))

    def column(self, name: str) -> List[Any]:
        """One field of every record; None if a record lacks it."""
        if self and name not in self.columns():
            raise KeyError(f"{name}: the columns are {', '.join(self.columns())}")
        return [record.get(name) for record in self]

    def frame(self) -> Any:
        """A pandas.DataFrame with a line for each record.

        Nested values get a column that is named by their path:
        `memory.1.measured_peak_bytes` is the value of rank 1. Lists of numbers stay
        lists.
        """
        pandas = optional_package("pandas", "a frame")
        flat: List[Record] = []
        for record in self:
            flat.append({})
            _flat(record, "", flat[-1])
        return pandas.DataFrame(flat)

    def __str__(self) -> str:
        names = self.columns()
        lines = [names] + [[_cell(record.get(name)) for name in names] for record in self]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                         for line in lines)

    def _repr_html_(self) -> str:
        def line(tag: str, cells: List[str]) -> str:
            inside = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
            return f"<tr>{inside}</tr>"

        names = self.columns()
        body = [line("td", [_cell(record.get(name)) for name in names]) for record in self]
        return "<table>" + line("th", names) + "".join(body) + "</table>"
