"""Turns of a torch program on a CPU or a GPU, where matrix products and convolutions are in tf32."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from messages import turns


def torch_turns(
    workload: str,
    device: str,
    parameters: Callable[[], Mapping[str, torch.Tensor]],
    packages: tuple[str, ...] = (),
    describe: Callable[[], dict[str, Any]] = dict,
    processes: int = 1,
    waits: bool = True,
) -> Iterator[None]:
    """Turns whose description names a file with the model's parameters, and the peak of allocated GPU memory.

    Args:
        workload: The path of the workload; the parameters are written beside it.
        device: Where the program computes.
        parameters: The model's parameters by name.
        packages: Their versions are in the first message.
        describe: Further entries of the description.
        processes: The number of processes that hold the same tensors.
        waits: Whether a round ends when the GPU has no more work; not if the program knows when its round has ended.
    """
    on_gpu = device.startswith("cuda")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    def finish() -> None:
        if on_gpu and waits:
            torch.cuda.synchronize()

    def description() -> dict[str, Any]:
        path = f"{workload}.{os.getpid()}.npz"
        np.savez(path, **{name: value.detach().cpu().numpy() for name, value in parameters().items()})
        memory = processes * torch.cuda.max_memory_allocated() if on_gpu else None
        return {"parameters": path, "memory": memory, **describe()}

    return turns(finish, description, packages={name: version(name) for name in ("torch", *packages)})
