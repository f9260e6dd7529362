"""Computations on a GPU that give the same bits every time: no kernel is chosen by timing or adds in random order.

cuDNN takes deterministic algorithms, and takes them without measuring. cuBLAS has a workspace of fixed size, which must
be set before its first call in a process. Torch's switch for all other operations makes every indexing slower, also
where nothing is added; so it is set only if a model's first step has operations that add in random order.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils import deterministic
from torch.utils._python_dispatch import TorchDispatchMode

ADDING = (
    "scatter_add", "scatter_reduce", "index_add", "index_reduce", "put", "histc", "bincount", "cumsum", "kthvalue",
    "upsample", "grid_sampler", "reflection_pad", "replication_pad", "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d", "adaptive_max_pool", "avg_pool3d_backward", "fractional_max_pool", "max_pool3d",
    "max_unpool", "embedding_bag", "nll_loss2d", "ctc_loss",
)  # fmt: skip
"""How the names of operations begin that torch knows to be non-deterministic on a GPU by default."""

WARNING = 1
"""Torch's mode in which operations are deterministic, and warn where they cannot be.

It is set as a mode, not by `torch.use_deterministic_algorithms`, which loads torch's compiler and takes seconds.
"""


class Repeatable:
    """Sets torch's switches for repeatable results on a GPU, and restores them."""

    def __init__(self) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        cudnn = torch.backends.cudnn
        self._before = (
            cudnn.deterministic,
            cudnn.benchmark,
            torch.get_deterministic_debug_mode(),
            deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # set by torch at run time
        )
        self._watched = False
        cudnn.deterministic, cudnn.benchmark = True, False

    def watching(self) -> AbstractContextManager[object]:
        """A context for the first step of a model, in which its operations are looked at; later ones are not."""
        if self._watched:
            return nullcontext()
        self._watched = True
        return Watch(self.require)

    def require(self) -> None:
        """Set the switch for all operations. Those without a deterministic implementation are computed anyway."""
        warnings.filterwarnings("ignore", ".*does not have a deterministic implementation")
        torch.set_deterministic_debug_mode(WARNING)
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def restore(self) -> None:
        """Set the switches as they were before."""
        cudnn, benchmark, mode, fill = self._before
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn, benchmark
        torch.set_deterministic_debug_mode(mode)
        deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Calls a function before the first operation that adds in random order."""

    def __init__(self, found: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found: Callable[[], None] | None = found

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would otherwise load its compiler, which takes seconds, to keep it from compiling what is below."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of `func`."""
        exact = not (args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point())
        if self._found is not None and not exact and adds_in_random_order(func.__name__):
            self._found()
            self._found = None
        return func(*args, **(kwargs or {}))


def adds_in_random_order(name: str) -> bool:
    """Whether an operation of torch, by its name, may give other bits in every call."""
    return name.lstrip("_").startswith(ADDING)
