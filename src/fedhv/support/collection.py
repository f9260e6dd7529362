"""Garbage collection during rounds, which create many small objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_frozen = False
"""Whether `only_new_objects` is at work, around whatever calls it again."""


@contextmanager
def only_new_objects() -> Iterator[None]:
    """Garbage collection passes over the objects that exist now: those of torch alone are hundreds of thousands.

    A program that has frozen its objects itself is left alone: to thaw ours would thaw its own.
    """
    global _frozen
    if _frozen or gc.get_freeze_count():  # which counts the objects one by one: tens of milliseconds
        yield
        return
    _frozen = True
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _frozen = False
