"""Shared memory between the parallel engine and its workers, for the tensors of requests and replies.

Large tensors are written to shared buffers and not sent through a pipe. The header of a message holds its plain values,
its small tensors and the shapes of its large ones. This works for any request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import tensor_fields, tensors_of
from fedhv.protocol.request import Request

SMALL = 4096
"""The largest number of scalars of a tensor in the header."""


@dataclass(frozen=True)
class Header:
    """A message without its large tensors.

    Attributes:
        values: Its plain fields, and its small tensors as NumPy arrays.
        shapes: The shapes of its large tensors, which are contiguous in the buffer.
    """

    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]


class SharedBuffers:
    """Memory that the engine and its workers share: one place for the request, and several for replies."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._request = shared_memory(0)
        self._answers = shared_memory(places, 0)

    def grow(self, request: Request, layout: Layout) -> bool:
        """Grow to the size of the request and its replies. True if memory is new: only workers started later see it."""
        out = sum(value.numel() for value in tensors_of(request).values())
        back = sum(torch.Size(shape).numel() for shape in request.reply_shapes(layout).values())
        grown = out > self._request.numel() or back > self._answers.shape[1]
        if out > self._request.numel():
            self._request = shared_memory(out)
        if back > self._answers.shape[1]:
            self._answers = shared_memory(self.places, back)
        return grown

    def write_request(self, message: Any) -> Header:
        """Write a request's tensors."""
        return _write(message, self._request)

    def read_request(self, kind: type[Any], header: Header) -> Any:
        """Read the request."""
        return _read(kind, header, self._request)

    def write_reply(self, reply: Any, position: int) -> Header:
        """Write the reply of the client at a position of the cohort."""
        return _write(reply, self._answers[position % self.places])

    def read_reply(self, kind: type[Any], header: Header, position: int) -> Any:
        """Read that reply. Tensors that are summed at once are not copied; the others are."""
        reply = _read(kind, header, self._answers[position % self.places])
        each = [name for name, about in tensor_fields(kind).items() if about.combine == "each"]
        kept = [name for name in each if name in header.shapes]
        for name in kept:  # another client's reply will overwrite the place
            object.__setattr__(reply, name, getattr(reply, name).clone())
        return reply


def packed(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as arrays, to send between processes."""
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


def unpacked(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Tensors from arrays that were sent between processes."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _write(message: Any, place: Tensor) -> Header:
    large = {n: t for n, t in tensors_of(message).items() if t.numel() > SMALL and t.dtype == torch.float32}
    start = 0
    for value in large.values():
        place[start : start + value.numel()].copy_(value.reshape(-1))
        start += value.numel()
    values = {f.name: getattr(message, f.name) for f in fields(message) if f.name not in large}
    small = {name: value.detach().cpu().numpy() for name, value in values.items() if isinstance(value, Tensor)}
    return Header(values | small, {name: tuple(value.shape) for name, value in large.items()})


def _read(kind: type[Any], header: Header, place: Tensor) -> Any:
    values = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in header.values.items()}
    start = 0
    for name, shape in header.shapes.items():
        size = torch.Size(shape).numel()
        values[name] = place[start : start + size].view(shape)
        start += size
    return kind(**values)


def shared_memory(*shape: int) -> Tensor:
    """Zeros in memory that is shared with processes forked later."""
    memory = torch.zeros(shape)
    memory.share_memory_()  # type: ignore[no-untyped-call]  # torch has no types here
    return memory
