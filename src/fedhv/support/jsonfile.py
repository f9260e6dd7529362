"""JSON that others may have written: read within limits, and refused in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedhv.support.files import write_atomic

LARGEST = 64_000_000
"""No JSON document of a run is larger: a summary of a thousand tasks has a tenth of a megabyte."""


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object; anything else, too deep or too large, is a `ValueError` that says why."""
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {_kind(value)}")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `OSError` where it cannot be read, `ValueError` where it is something else."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return parse_object(path.read_bytes())


def write_object(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON document for people and programs, whole or not at all."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), "null"
    )
