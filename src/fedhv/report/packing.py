"""Data inside a page: JSON, compressed and written as letters, so that every round of a large study fits in."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any


def packed(value: Mapping[str, Any]) -> str:
    """Letters that neither end a script element nor start a comment; the same data give the same letters."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def unpacked(letters: str) -> Any:
    """What a page holds."""
    return json.loads(gzip.decompress(base64.b64decode(letters)))
