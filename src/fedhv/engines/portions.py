"""How much is computed at once on a GPU: as much as fits into its memory, which is found out by trying."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from fedhv.support.errors import FedHVError, causes

T = TypeVar("T")


TOO_SMALL = (
    "The GPU's memory is too small for this. Play fewer runs at a time (--jobs), or use a smaller batch size or "
    "--device cpu."
)


def out_of_memory(error: BaseException) -> bool:
    """Whether a GPU's memory was short: torch's allocator has an error of its own for it, libraries only say so."""
    return any(
        isinstance(cause, torch.cuda.OutOfMemoryError)
        or (isinstance(cause, RuntimeError) and any(sign in str(cause) for sign in ("out of memory", "ALLOC_FAILED")))
        for cause in causes(error)
    )


@contextmanager
def gpu_memory(error: str = TOO_SMALL) -> Iterator[None]:
    """Where memory that runs short is nothing that smaller portions could help: the user is told this."""
    try:
        yield
    except RuntimeError as short:
        if not out_of_memory(short):
            raise
        raise FedHVError(error) from None


class Portion:
    """A size that is halved, with a note, whenever memory runs short.

    Args:
        size: To begin with.
        note: What the user is told, with a place `{size}` for the new one.
        error: What the user is told when not even one fits.
        notes: Where notes go.
    """

    def __init__(self, size: int, note: str, error: str, notes: list[str]) -> None:
        self.size, self._note, self._error, self._notes = max(1, size), note, error, notes

    def __call__(
        self, total: int, compute: Callable[[int], T], release: Callable[[], None] = torch.cuda.empty_cache
    ) -> T:
        """What `compute` gives for at most so many at once, out of `total`.

        `release` gives back whatever memory the caller keeps for later.
        """
        while True:
            size = min(self.size, total)
            try:
                return compute(size)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if size <= 1:
                    raise FedHVError(self._error) from None
            # Only here, behind the handler, nothing holds the memory of the failed attempt any more but cycles.
            gc.collect()
            release()
            self.size = (size + 1) // 2
            self._notes.append(self._note.format(size=self.size))
