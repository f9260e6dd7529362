"""Shared memory between the parallel engine and its workers: a request's tensors going out, the answers coming back.

What is on the board is not sent. A note says where a message's tensors lie; small tensors and plain values are in the
note itself. Any request travels like this.
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
"""Scalars; tensors up to this size travel in the note."""


@dataclass(frozen=True)
class Note:
    """A message without its large tensors.

    Attributes:
        values: Its plain fields and its small tensors, these as NumPy arrays.
        shapes: Its large tensors, which lie on the board one behind the other.
    """

    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]


class Board:
    """Tensors that both sides see: one place for the request, and a few for answers that wait to be summed."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._request = shared_memory(0)
        self._answers = shared_memory(places, 0)

    def make_room(self, request: Request, layout: Layout) -> bool:
        """Grow to what the request and its replies need; True if there is new memory, which only new workers see."""
        out = sum(value.numel() for value in tensors_of(request).values())
        back = sum(torch.Size(shape).numel() for shape in request.reply_shapes(layout).values())
        grown = out > self._request.numel() or back > self._answers.shape[1]
        if out > self._request.numel():
            self._request = shared_memory(out)
        if back > self._answers.shape[1]:
            self._answers = shared_memory(self.places, back)
        return grown

    def post(self, message: Any) -> Note:
        """Put a request's tensors on the board."""
        return _write(message, self._request)

    def posted(self, kind: type[Any], note: Note) -> Any:
        """The request that is on the board."""
        return _read(kind, note, self._request)

    def put(self, reply: Any, position: int) -> Note:
        """Put the answer of the client at a position of the cohort on the board."""
        return _write(reply, self._answers[position % self.places])

    def taken(self, kind: type[Any], note: Note, position: int) -> Any:
        """That answer; what is summed at once may be read where it lies, the rest is copied."""
        reply = _read(kind, note, self._answers[position % self.places])
        kept = [name for name, about in tensor_fields(kind).items() if about.combine == "each" and name in note.shapes]
        for name in kept:  # the place is written anew before the cohort is through
            object.__setattr__(reply, name, getattr(reply, name).clone())
        return reply


def packed(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as they are sent between processes."""
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


def unpacked(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Tensors that were sent between processes."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _write(message: Any, place: Tensor) -> Note:
    large = {n: t for n, t in tensors_of(message).items() if t.numel() > SMALL and t.dtype == torch.float32}
    start = 0
    for value in large.values():
        place[start : start + value.numel()].copy_(value.reshape(-1))
        start += value.numel()
    values = {f.name: getattr(message, f.name) for f in fields(message) if f.name not in large}
    small = {name: value.detach().cpu().numpy() for name, value in values.items() if isinstance(value, Tensor)}
    return Note(values | small, {name: tuple(value.shape) for name, value in large.items()})


def _read(kind: type[Any], note: Note, place: Tensor) -> Any:
    values = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in note.values.items()}
    start = 0
    for name, shape in note.shapes.items():
        size = torch.Size(shape).numel()
        values[name] = place[start : start + size].view(shape)
        start += size
    return kind(**values)


def shared_memory(*shape: int) -> Tensor:
    """Zeros that processes forked from now on see too."""
    memory = torch.zeros(shape)
    memory.share_memory_()  # type: ignore[no-untyped-call]  # torch has no types here
    return memory
