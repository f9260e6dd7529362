"""JSON files, read with limits on size and depth; invalid ones give a one-line error."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedhv.support.files import write_atomic
from fedhv.support.numbers import is_number

LARGEST = 64_000_000
"""No JSON document of a run is larger: a summary of a thousand tasks has a tenth of a megabyte."""


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object. Anything else, or one that is too deep or too large, raises a `ValueError` with the reason."""
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
    """The JSON object in a file. Raises `OSError` if it cannot be read and `ValueError` if it is not a JSON object."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return parse_object(path.read_bytes())


def write_object(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON document atomically."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), "null"
    )


class Fields:
    """A JSON object, read key by key; a missing key, or a value of another kind, is a `ValueError` that names it."""

    def __init__(self, values: Any, where: str = "") -> None:
        self._where = where
        if not isinstance(values, dict):
            raise self._wrong("", "an object")
        self._values: dict[str, Any] = values

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def but(self, keys: Container[str]) -> dict[str, Any]:
        """Everything else."""
        return {key: value for key, value in self._values.items() if key not in keys}

    def number(self, key: str) -> float:
        """Whole or not; NaN and infinity are numbers too."""
        value: Any = self._values.get(key)
        if not _holdable(value):
            raise self._wrong(key, "a number")
        number: float = value
        return number

    def whole(self, key: str, least: int | None = None) -> int:
        """A whole number; it counts something, so it is of a size that counts have."""
        value = self._values.get(key)
        if not isinstance(value, int) or not _holdable(value):
            raise self._wrong(key, "a number")
        if least is not None and value < least:
            raise self._wrong(key, f"at least {least}")
        return value

    def text(self, key: str) -> str:
        """Text."""
        value = self._values.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def truth(self, key: str) -> bool:
        """True or false."""
        value = self._values.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        values = self._list(key)
        for i, value in enumerate(values):
            if not _holdable(value):
                raise self._wrong(f"{key}[{i}]", "a number")
        return tuple(values)

    def object(self, key: str) -> Fields:
        """An object within it."""
        return Fields(self._values.get(key), self._path(key))

    def objects(self, key: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(each, self._path(f"{key}[{i}]")) for i, each in enumerate(self._list(key))]

    def _list(self, key: str) -> list[Any]:
        values = self._values.get(key)
        if not isinstance(values, list):
            raise self._wrong(key, "a list")
        return values

    def _path(self, key: str) -> str:
        return ".".join(filter(None, (self._where, key)))

    def _wrong(self, key: str, what: str) -> ValueError:
        return ValueError(f"`{self._path(key)}` should be {what}")


def _holdable(value: Any) -> bool:
    """A number that arrays can hold: JSON's whole numbers may have thousands of digits."""
    return isinstance(value, float) or (is_number(value) and abs(value) < 2**63)
