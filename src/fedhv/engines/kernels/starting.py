"""Starting Triton kernels with as many tiles fetched ahead as fit, or planning them, to be compiled first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from fedhv.support.errors import FedHVError

_AHEAD: dict[Hashable, int] = {}
"""How many tiles kernels fetch ahead where fewer than wanted fit."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, num_stages: int, **constants: Any) -> None:
    """Start a kernel that fetches tiles ahead: as many as wanted, or as fit into this GPU's shared memory.

    How much of it a kernel takes is known to its compiler alone.
    """
    key = _key(kernel, arguments, constants)
    for stages in range(_AHEAD.get(key, num_stages), 0, -1):
        try:
            start(kernel, grid, *arguments, num_stages=stages, **constants)
            return
        except OutOfResources:
            _AHEAD[key] = max(1, stages - 1)
    raise FedHVError("This GPU has too little shared memory for the stacked kernels. Use --precision float32.")


def _key(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> Hashable:
    types = tuple(a.dtype for a in arguments if isinstance(a, Tensor))
    return kernel, arguments[0].device, types, tuple(constants.items())


@dataclass(frozen=True)
class Planned:
    """A kernel that will be started, without the memory of its arguments.

    Attributes:
        kernel: The function.
        grid: The number of programs.
        arguments: Tensors are represented by their types.
        constants: Tile sizes and shapes.
        key: What `_AHEAD` knows it by.
        device: Where it will run.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    key: Hashable
    device: torch.device

    def compile(self) -> None:
        """Compile it for this device, with fewer tiles fetched ahead until it fits; the result is cached by Triton."""
        torch.cuda.set_device(self.device)
        room = getattr(torch.cuda.get_device_properties(self.device), "shared_memory_per_block_optin", 0) or 232_448
        constants = dict(self.constants)
        while True:
            made = self.kernel.warmup(*self.arguments, grid=self.grid, **constants)
            if made.metadata.shared <= room or constants.get("num_stages", 1) <= 1:
                return
            constants["num_stages"] -= 1
            _AHEAD[self.key] = constants["num_stages"]


_PLANNED: list[Planned] | None = None


@contextmanager
def planning() -> Iterator[list[Planned]]:
    """In this context kernels are listed instead of started, and their results are zeros."""
    global _PLANNED
    before, _PLANNED = _PLANNED, []
    try:
        yield _PLANNED
    finally:
        _PLANNED = before


def start(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Start a kernel, or note that it will be started."""
    if _PLANNED is None:
        kernel[grid](*arguments, **constants)
        return
    stages = {name: value for name, value in constants.items() if name != "num_stages"}
    types = tuple(a.dtype if isinstance(a, Tensor) else a for a in arguments)
    key = _key(kernel, arguments, stages)
    _PLANNED.append(Planned(kernel, grid, types, tuple(constants.items()), key, arguments[0].device))


def output(*shape: int, **options: Any) -> Tensor:
    """Memory for the result of a kernel."""
    return torch.empty(*shape, **options) if _PLANNED is None else torch.zeros(*shape, **options)


def output_like(like: Tensor, **options: Any) -> Tensor:
    """The same, with the shape of another tensor."""
    return torch.empty_like(like, **options) if _PLANNED is None else torch.zeros_like(like, **options)
