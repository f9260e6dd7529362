"""Garbage collection during rounds, which create many small objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_new_objects() -> Iterator[None]:
    """Garbage collection passes over the objects that exist now: those of torch alone are hundreds of thousands.

    A program that has frozen its objects itself is left alone: to thaw ours would thaw its own.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
