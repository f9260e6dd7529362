"""Starting Triton kernels with as many tiles fetched ahead as fit, or planning them, to be compiled first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.compiler import make_backend
from triton.runtime import driver as triton_driver
from triton.runtime.errors import OutOfResources

from fedhv.support.errors import FedHVError

_PREPARING = threading.Lock()
"""Held while Triton builds its driver, which may happen in another thread (see `preparing`)."""

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
class Chip:
    """What the compiler needs to know of a GPU.

    Attributes:
        number: Its number.
        target: Its architecture, for Triton.
        shared_memory: The bytes of shared memory that a program may have.
        launcher: Triton's class for what starts a kernel, which a C compiler makes for every list of arguments.
    """

    number: int
    target: Any
    shared_memory: int
    launcher: Any

    @classmethod
    def of(cls, device: torch.device) -> Chip:
        """The GPU with this name."""
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_device(number)
        properties = torch.cuda.get_device_properties(number)
        room = getattr(properties, "shared_memory_per_block_optin", 0) or 232_448
        with _PREPARING:
            target = triton_driver.active.get_current_target()
            _identify_compiler(target)
            return cls(number, target, room, triton_driver.active.launcher_cls)

    # What Triton asks of a driver while it compiles. A forked process must not use CUDA, so there a chip is the driver.

    def get_current_device(self) -> int:
        """The number of the GPU."""
        return self.number

    def get_current_stream(self, device: int) -> int:
        """No stream: nothing is started."""
        return 0

    def get_current_target(self) -> Any:
        """The architecture."""
        return self.target


@dataclass(frozen=True)
class Planned:
    """A kernel that will be started, without the memory of its arguments.

    Two that are the same code for the compiler are equal, whatever their number of programs.

    Attributes:
        kernel: The function.
        arguments: Tensors and numbers are represented by one of those with the same code.
        constants: Tile sizes and shapes.
        key: What `_AHEAD` knows it by.
        chip: Where it will run.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    key: Hashable
    chip: Chip

    def compile(self) -> None:
        """Compile it for its GPU, with fewer tiles fetched ahead until it fits, and load it; Triton caches the result.

        Loading takes long for many kernels. In their first start it would not be interrupted by a signal.
        """
        torch.cuda.set_device(self.chip.number)
        made = self._compile()
        load = getattr(made, "_init_handles", None)  # not in every version of Triton
        if load is not None:
            load()

    def compile_elsewhere(self) -> None:
        """The same in a forked process, and what starts it."""
        triton_driver.set_active(self.chip)
        made = self._compile()
        self.chip.launcher(made.src, made.metadata)

    def _compile(self) -> Any:
        constants = dict(self.constants)
        while True:
            made = self.kernel.warmup(*self.arguments, grid=(1,), **constants)
            if made.metadata.shared <= self.chip.shared_memory or constants.get("num_stages", 1) <= 1:
                return made
            constants["num_stages"] -= 1
            _AHEAD[self.key] = constants["num_stages"]


@functools.cache
def _identify_compiler(target: Any) -> None:
    """Let Triton compute once what it names compiled kernels by: processes that are forked later have it already.

    It takes half a second, most of it for a checksum of the compiler.
    """
    with suppress(ImportError):  # not the same place in every version
        from triton.runtime.cache import triton_key

        triton_key()
    make_backend(target).hash()


@dataclass(frozen=True)
class Memory:
    """What the compiler asks of a tensor: its type, and whether it begins at a multiple of 16 bytes."""

    dtype: torch.dtype
    aligned: bool

    def data_ptr(self) -> int:
        """An address of this kind."""
        return 0 if self.aligned else 8

    def ptr_range(self) -> int:
        """The size is not asked for."""
        return 0


def _representative(value: Any, specialised: bool = True) -> Any:
    """A value for which Triton makes the same code: of numbers it distinguishes 1, multiples of 16, and long ones.

    Of numbers that the kernel is not specialised for it distinguishes long ones alone.
    """
    if isinstance(value, Tensor):
        return Memory(value.dtype, value.data_ptr() % 16 == 0)
    if not isinstance(value, int) or isinstance(value, bool) or (value == 1 and specialised):
        return value
    return (2**32 if abs(value) >= 2**31 else 0) + (16 if value % 16 == 0 and specialised else 17)


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
    key = _key(kernel, arguments, stages)
    general = getattr(kernel, "do_not_specialize", None) or ()
    names = kernel.arg_names[: len(arguments)]
    alike = tuple(_representative(each, name not in general) for name, each in zip(names, arguments, strict=True))
    _PLANNED.append(Planned(kernel, alike, tuple(constants.items()), key, Chip.of(arguments[0].device)))


def output(*shape: int, **options: Any) -> Tensor:
    """Memory for the result of a kernel."""
    return torch.empty(*shape, **options) if _PLANNED is None else torch.zeros(*shape, **options)


def output_like(like: Tensor, **options: Any) -> Tensor:
    """The same, with the shape of another tensor."""
    return torch.empty_like(like, **options) if _PLANNED is None else torch.zeros_like(like, **options)
