"""Copies between the host and a GPU that do not make the host wait for the GPU's other work."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def to_device(value: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """An array or a tensor on a device. From pinned memory, because a copy from other memory waits for the GPU."""
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if device.type != "cuda" or tensor.device.type == "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class HostCopy:
    """A tensor's copy on the host. Reading it waits for the work before the copy, and for nothing after it."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensor.device.type != "cuda":
            self._host = tensor.detach().to("cpu", copy=True)
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor.detach(), non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        self._event.record(torch.cuda.current_stream(tensor.device))

    def read(self) -> Tensor:
        """The values."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        return self._host


class HostCopies:
    """Begun copies, found again by the tensor that was copied."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[Tensor, int, HostCopy]] = {}

    def begin(self, tensor: Tensor) -> None:
        """Begin to copy a tensor. It is kept in memory until `clear`, so that its address stays its own."""
        self._begun[tensor.data_ptr()] = tensor, tensor._version, HostCopy(tensor)

    def read(self, tensor: Tensor) -> Tensor:
        """The tensor on the host: from the copy if one was begun and the tensor is unchanged, else copied now."""
        original, version, copy = self._begun.get(tensor.data_ptr(), (None, 0, None))
        if copy is None or original is None or not _same(original, tensor) or tensor._version != version:
            return tensor.cpu()
        return copy.read()

    def clear(self) -> None:
        """Forget all copies."""
        self._begun.clear()


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
