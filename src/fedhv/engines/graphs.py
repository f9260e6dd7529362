"""A computation of fixed shape, recorded once as a CUDA graph and then replayed: one launch for many kernels."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

WARM_UP = 2
"""Calls before recording: compilation, autotuning and lazily made handles must not be recorded."""

TensorFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    output: Tensor


class Recorder:
    """Replays functions that were called before with tensors of the same shapes; on a CPU it just calls them."""

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
            key: Names the function and all that it depends on besides its inputs.
            function: Reads nothing but its inputs and tensors that never move.
            inputs: May be any tensors; they are copied to where the recording reads them.
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
        """Drop all recordings and give their memory back."""
        self._recordings.clear()
        torch.cuda.empty_cache()

    def _record(self, function: TensorFunction, inputs: Mapping[str, Tensor]) -> _Recording:
        static = {name: value.clone() for name, value in inputs.items()}
        index = self._device.index
        stream = _stream(torch.cuda.current_device() if index is None else index)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # The first gradient in a process is taken in a thread without a context; torch helps itself, and says so.
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
    """The one stream on which a GPU records everything: cuBLAS keeps memory for every stream it has ever seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
