"""Tables for programs, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, every number with all its digits; an empty field is a value that is not there."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value
