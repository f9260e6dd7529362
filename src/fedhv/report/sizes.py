"""The unit of bytes in a table: kB where no number reaches a megabyte, else MB."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ByteUnit:
    """Its name, how many bytes it has, and this in words."""

    name: str
    bytes: float
    meaning: str

    def of(self, count: float) -> float:
        """Bytes in this unit."""
        return count / self.bytes


KILO, MEGA = ByteUnit("kB", 1e3, "1 kB = 1000 bytes"), ByteUnit("MB", 1e6, "1 MB = 10⁶ bytes")


def byte_unit(counts: Iterable[float]) -> ByteUnit:
    """The unit for these numbers of bytes, which one column has."""
    return KILO if max(counts, default=0) < 1e6 else MEGA
