"""Portions: how much is computed at once on a GPU. Halved when memory runs out, doubled when there is memory again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from fedhv.support.errors import FedHVError, causes

T = TypeVar("T")

WAIT = 4
"""Computations in portions before a larger portion is tried again; twice as many after each that did not fit."""

CONTEXT = 2**29
"""What a process itself uses on a GPU beside tensors, about."""

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
def gpu_memory(error: str = TOO_SMALL, device: torch.device | None = None) -> Iterator[None]:
    """Turn a shortage of GPU memory that smaller portions cannot solve into this error."""
    try:
        yield
    except RuntimeError as short:
        if not out_of_memory(short):
            raise
        raise FedHVError(error + used_by_others(device)) from None


@contextmanager
def suppress_out_of_memory() -> Iterator[None]:
    """Leave out what is not necessary if the GPU's memory is too small for it."""
    try:
        yield
    except RuntimeError as short:
        if not out_of_memory(short):
            raise


def used_by_others(device: torch.device | None = None) -> str:
    """A sentence on the memory that other programs use of this GPU, if it is more than a tenth; "" if unknown."""
    try:
        if not torch.cuda.is_available() or (device is not None and device.type != "cuda"):
            return ""
        free, total = torch.cuda.mem_get_info(device)
        others = total - free - torch.cuda.memory_reserved(device) - CONTEXT
    except RuntimeError:  # there is too little memory to ask
        return ""
    return f" Other programs use {others / 2**30:.0f} of its {total / 2**30:.0f} GiB." if others > total / 10 else ""


class Portion:
    """A size that is halved, with a message, when memory runs out, and doubled again when there is memory.

    Other programs may fill a GPU for a while. Results in portions of another size differ by rounding at most. What
    never fits is tried less and less often.

    Args:
        size: The initial size.
        note: The message, with `{size}` for the new size.
        error: The error if a portion of one does not fit.
        notes: The list that receives the messages.
        device: The GPU.
    """

    def __init__(self, size: int, note: str, error: str, notes: list[str], device: torch.device | None = None) -> None:
        self.size, self._note, self._error, self._notes, self._device = max(1, size), note, error, notes, device
        self._short, self._least = 0, self.size
        """The largest size at which memory ran out, and the smallest that was told of."""
        self._wait, self._waited, self._grown = WAIT, 0, False

    def __call__(
        self, total: int, compute: Callable[[int], T], release: Callable[[], None] = torch.cuda.empty_cache
    ) -> T:
        """The result of `compute(size)`, with at most `total` at once.

        `release` frees memory that the caller keeps for later.
        """
        larger = self._larger(total)
        if larger:
            release()  # what the caller keeps for smaller portions would be in the way
            try:
                result = compute(larger)
            except RuntimeError:  # libraries have many words for short memory; another error comes again below
                self._wait, self._waited = 2 * self._wait, 0
            else:  # the next computation tries the double
                self.size, self._waited, self._grown = larger, self._wait, True
                return result
            self._clear(release)
        while True:
            size = min(self.size, total)
            try:
                return compute(size)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if size <= 1:
                    raise FedHVError(self._error + used_by_others(self._device)) from None
            self._clear(release)
            self._halve(size)

    def _larger(self, total: int) -> int:
        """The size that is tried again after some computations in portions, or 0."""
        if self.size >= min(total, self._short):  # it was never halved, or is as before
            return 0
        self._waited += 1
        return min(2 * self.size, self._short, total) if self._waited > self._wait else 0

    def _halve(self, size: int) -> None:
        if self._grown:  # other computations fitted in this size, this one does not
            self._wait *= 2
        self._waited, self._grown = 0, False
        self._short = max(self._short, self.size)
        self.size = (size + 1) // 2
        if self.size < self._least:
            self._least = self.size
            self._notes.append(self._note.format(size=self.size))

    @staticmethod
    def _clear(release: Callable[[], None]) -> None:
        """Only after its handler is the memory of a failed attempt free, except for reference cycles."""
        gc.collect()
        release()
