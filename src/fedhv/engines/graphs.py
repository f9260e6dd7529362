"""CUDA graphs: a computation of fixed shape is recorded once and replayed with one launch."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.first_gradient import quiet_first_gradient
from fedhv.engines.formulations.obstacles import is_obstacle

WARM_UP = 2
"""The number of calls before recording. Compilation, autotuning and lazily created handles must not be recorded."""

MOST_SHAPES = 8
"""The number of shapes of a report or evaluation that are recorded; recordings take time and memory."""

TensorFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    output: Tensor
    given: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    """What was copied last into every input, and its version: the same tensor is not copied again."""

    def set(self, name: str, value: Tensor) -> None:
        """Set an input of the recording."""
        last, version = self.given.get(name, (None, -1))
        if last is not value or version != value._version:
            self.inputs[name].copy_(value, non_blocking=True)
            self.given[name] = value, value._version


class Recorder:
    """Replays functions that were called before with tensors of the same shapes. On a CPU it calls them."""

    def __init__(
        self, device: torch.device, watching: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._device, self._watching = device, watching
        self._recordings: dict[tuple[Hashable, Hashable], _Recording] = {}
        self._plain: set[Hashable] = set()
        self._pool: Any = None
        self.seconds = 0.0
        """The time of compilations and recordings, until whoever counts it sets it to zero."""

    @property
    def records(self) -> bool:
        """Whether there is a GPU to record for."""
        return self._device.type == "cuda"

    def __call__(
        self, key: Hashable, function: TensorFunction, inputs: Mapping[str, Tensor], brief: TensorFunction | None = None
    ) -> Tensor:
        """`function(**inputs)`. The result is overwritten by the next call with the same key and shapes.

        Args:
            key: Identifies the function and everything that it depends on except its inputs.
            function: Reads only its inputs and tensors with a fixed address.
            inputs: Any tensors; they are copied into the tensors of the recording.
            brief: A shorter function of the same inputs with the same operations, which is called before recording.
        """
        if not self.records:
            return function(**inputs)
        return self._replayed(self._shape(key, inputs), function, inputs, brief)

    def carefully(self, key: Hashable, function: TensorFunction, inputs: Mapping[str, Tensor]) -> Tensor:
        """The same for a function that perhaps cannot be recorded, or comes with many shapes: then it is called."""
        if not self.records or key in self._plain:
            return function(**inputs)
        shape = self._shape(key, inputs)
        if shape not in self._recordings and sum(known[0] == key for known in self._recordings) >= MOST_SHAPES:
            return function(**inputs)
        try:
            return self._replayed(shape, function, inputs)
        except Exception as error:
            if not is_obstacle(error):
                raise
            self._plain.add(key)
        return function(**inputs)

    @staticmethod
    def _shape(key: Hashable, inputs: Mapping[str, Tensor]) -> tuple[Hashable, Hashable]:
        return key, tuple((name, tuple(value.shape)) for name, value in sorted(inputs.items()))

    def _replayed(
        self,
        shape: tuple[Hashable, Hashable],
        function: TensorFunction,
        inputs: Mapping[str, Tensor],
        brief: TensorFunction | None = None,
    ) -> Tensor:
        if shape not in self._recordings:
            began = time.perf_counter()
            try:
                self._recordings[shape] = self._record(function, inputs, brief or function)
            finally:
                self.seconds += time.perf_counter() - began
        recording = self._recordings[shape]
        for name, value in inputs.items():
            recording.set(name, value)
        recording.graph.replay()
        return recording.output

    def forget(self) -> None:
        """Drop all recordings and release their memory."""
        self._recordings.clear()
        self._pool = None
        torch.cuda.empty_cache()

    def _record(self, function: TensorFunction, inputs: Mapping[str, Tensor], brief: TensorFunction) -> _Recording:
        static = {name: value.clone() for name, value in inputs.items()}
        index = self._device.index
        stream = _stream(torch.cuda.current_device() if index is None else index)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream), quiet_first_gradient():
            for _ in range(WARM_UP):
                with self._watching():
                    brief(**static)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        # All recordings share their memory: they are replayed one after the other, and what they return is copied.
        self._pool = torch.cuda.graph_pool_handle() if self._pool is None else self._pool
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream), _no_collection():
            output = function(**static)
        return _Recording(graph, static, output)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it may release an earlier recording, which CUDA does not permit during another one."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream for all recordings on a GPU. There is only one, because cuBLAS allocates memory for every stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
