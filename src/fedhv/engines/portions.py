"""Portions: how much is computed at once on a GPU. Halved when memory runs out, doubled when there is memory again."""

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


WAIT = 4
"""Computations in portions before a larger portion is tried again; twice as many after each that did not fit."""


@contextmanager
def gpu_memory(error: str = TOO_SMALL) -> Iterator[None]:
    """Turn a shortage of GPU memory that smaller portions cannot solve into this error."""
    try:
        yield
    except RuntimeError as short:
        if not out_of_memory(short):
            raise
        raise FedHVError(error + used_by_others()) from None


def used_by_others() -> str:
    """A sentence on the memory that other programs use of this GPU, if it is more than a tenth."""
    if not torch.cuda.is_available():
        return ""
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    return f" Other programs use {others / 2**30:.0f} of its {total / 2**30:.0f} GiB." if others > total / 10 else ""


class Portion:
    """A size that is halved, with a message, when memory runs out, and doubled again when there is memory.

    Other programs may fill a GPU for a while. What is computed in portions has the same result in all sizes.

    Args:
        size: The initial size.
        note: The message, with `{size}` for the new size.
        error: The error if a portion of one does not fit.
        notes: The list that receives the messages.
    """

    def __init__(self, size: int, note: str, error: str, notes: list[str]) -> None:
        self.size, self._note, self._error, self._notes = max(1, size), note, error, notes
        self._before, self._wait, self._waited = 0, WAIT, 0

    def __call__(
        self, total: int, compute: Callable[[int], T], release: Callable[[], None] = torch.cuda.empty_cache
    ) -> T:
        """The result of `compute(size)`, with at most `total` at once.

        `release` frees memory that the caller keeps for later.
        """
        larger = self._larger(total)
        while True:
            size = min(larger or self.size, total)
            try:
                result = compute(size)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if size <= 1:
                    raise FedHVError(self._error + used_by_others()) from None
            else:
                if larger:
                    self.size, self._wait, self._waited = larger, WAIT, WAIT  # the next one doubles it again
                return result
            # Only after the handler is the memory of the failed attempt free, except for reference cycles.
            gc.collect()
            release()
            self._waited = 0
            if larger:
                larger, self._wait = 0, 2 * self._wait
            else:
                self._before = max(self._before, self.size)
                self.size = (size + 1) // 2
                self._notes.append(self._note.format(size=self.size))

    def _larger(self, total: int) -> int:
        """The size that is tried again after some computations in portions, or 0."""
        if self.size >= min(total, self._before):  # it was never halved, or is as before
            return 0
        self._waited += 1
        return min(2 * self.size, self._before) if self._waited > self._wait else 0
