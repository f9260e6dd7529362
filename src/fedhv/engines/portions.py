"""Portions: how much is computed at once on a GPU. A portion is halved when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from fedhv.support.errors import FedHVError, causes

T = TypeVar("T")


TOO_SMALL = (
    "The GPU's memory is too small for this. Compute fewer runs at a time (--jobs), or use a smaller batch size or "
    "--device cpu."
)


def out_of_memory(error: BaseException) -> bool:
    """Whether a GPU ran out of memory. Torch's allocator has its own exception; libraries only have a message."""
    return any(
        isinstance(cause, torch.cuda.OutOfMemoryError)
        or (isinstance(cause, RuntimeError) and any(sign in str(cause) for sign in ("out of memory", "ALLOC_FAILED")))
        for cause in causes(error)
    )


@contextmanager
def gpu_memory(error: str = TOO_SMALL) -> Iterator[None]:
    """Turn a shortage of GPU memory that smaller portions cannot solve into this error."""
    try:
        yield
    except RuntimeError as short:
        if not out_of_memory(short):
            raise
        raise FedHVError(error) from None


class Portion:
    """A size that is halved, with a message, when memory runs out.

    Args:
        size: The initial size.
        note: The message, with `{size}` for the new size.
        error: The error if a portion of one does not fit.
        notes: The list that receives the messages.
    """

    def __init__(self, size: int, note: str, error: str, notes: list[str]) -> None:
        self.size, self._note, self._error, self._notes = max(1, size), note, error, notes

    def __call__(
        self, total: int, compute: Callable[[int], T], release: Callable[[], None] = torch.cuda.empty_cache
    ) -> T:
        """The result of `compute(size)`, with at most `total` at once.

        `release` frees memory that the caller keeps for later.
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
            # Only after the handler is the memory of the failed attempt free, except for reference cycles.
            gc.collect()
            release()
            self.size = (size + 1) // 2
            self._notes.append(self._note.format(size=self.size))
