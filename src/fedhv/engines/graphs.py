"""CUDA graphs: a computation of fixed shape is recorded once and replayed with one launch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

WARM_UP = 2
"""The number of calls before recording. Compilation, autotuning and lazily created handles must not be recorded."""

TensorFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    output: Tensor


class Recorder:
    """Replays functions that were called before with tensors of the same shapes. On a CPU it calls them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._recordings: dict[Hashable, _Recording] = {}

    @property
    def records(self) -> bool:
        """Whether there is a GPU to record for."""
        return self._device.type == "cuda"

    def __call__(self, key: Hashable, function: TensorFunction, inputs: Mapping[str, Tensor]) -> Tensor:
        """`function(**inputs)`. The result is overwritten by the next call with the same key and shapes.

        Args:
            key: Identifies the function and everything that it depends on except its inputs.
            function: Reads only its inputs and tensors with a fixed address.
            inputs: Any tensors; they are copied into the tensors of the recording.
        """
        if not self.records:
            return function(**inputs)
        shape = (key, tuple((name, tuple(value.shape)) for name, value in sorted(inputs.items())))
        if shape not in self._recordings:
            self._recordings[shape] = self._record(function, inputs)
        recording = self._recordings[shape]
        for name, value in inputs.items():
            recording.inputs[name].copy_(value, non_blocking=True)
        recording.graph.replay()
        return recording.output

    def forget(self) -> None:
        """Drop all recordings and release their memory."""
        self._recordings.clear()
        torch.cuda.empty_cache()

    def _record(self, function: TensorFunction, inputs: Mapping[str, Tensor]) -> _Recording:
        static = {name: value.clone() for name, value in inputs.items()}
        index = self._device.index
        stream = _stream(torch.cuda.current_device() if index is None else index)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # The first gradient in a process runs in a thread without a CUDA context; torch creates one and warns.
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS")
            for _ in range(WARM_UP):
                function(**static)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            output = function(**static)
        return _Recording(graph, static, output)


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """The stream for all recordings on a GPU. There is only one, because cuBLAS allocates memory for every stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
