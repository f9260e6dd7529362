"""A function of tensors, traced and compiled once for every shape of its arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fedhv.engines.interruptible import Interruptible
from fedhv.engines.kernels.ahead import await_threads
from fedhv.support.errors import caused_by


class Compiled:
    """A function that is traced to plain operators before it is compiled, so that `vmap` and gradients are resolved.

    The compiler chooses nothing by measuring: another process would choose otherwise, and results would differ. It
    works in a thread, so that `stopping` is noticed while it does.
    """

    def __init__(self, function: Callable[..., Tensor], stopping: Callable[[], bool] = lambda: False) -> None:
        self._function, self._stopping = function, stopping
        self._compiled: dict[Hashable, Callable[..., Tensor]] = {}
        self._called: set[Hashable] = set()
        """The shapes whose first call has succeeded. One that ran out of memory is not traced and compiled again."""

    def forget(self) -> None:
        """Drop everything compiled: from now on the function computes something else."""
        self._compiled.clear()
        self._called.clear()

    def __call__(self, *arguments: Any) -> Tensor:
        """`function(*arguments)`."""
        leaves = pytree.tree_leaves(arguments)
        shape = tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)
        if shape not in self._compiled:
            with Interruptible(self._stopping):  # of a deep model the trace takes many seconds
                # The trace would treat a bound method's `self` as an argument.
                graph = make_fx(lambda *arguments: self._function(*arguments))(*arguments)
            self._compiled[shape] = torch.compile(graph, dynamic=False, options=_options())
        try:
            if shape not in self._called:
                self._first(self._compiled[shape], arguments)
                self._called.add(shape)
            return self._compiled[shape](*arguments)
        except RuntimeError as error:
            # Ctrl-C leaves the compiler in an invalid state, and it then reports another error.
            if caused_by(error, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise

    def _first(self, compiled: Callable[..., Tensor], arguments: tuple[Any, ...]) -> None:
        """The first call, in which torch compiles."""
        threads, errors = torch.get_num_threads(), []
        # A stream belongs to a thread. On another one the arguments may not be there yet.
        stream = torch.cuda.current_stream() if torch.cuda.is_available() else None

        def call() -> None:
            try:
                torch.set_num_threads(threads)  # compiled code is bound to it
                with nullcontext() if stream is None else torch.cuda.stream(stream):
                    compiled(*arguments)
            except BaseException as error:  # raised by the thread that waits
                errors.append(error)

        worker = threading.Thread(target=call, daemon=True)
        worker.start()
        await_threads([worker], self._stopping)
        if errors:
            raise errors[0]
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def _options() -> dict[str, Any]:
    """The compiler's options, as far as this version of torch has them."""
    from torch._inductor import config

    return {"deterministic": True} if hasattr(config, "deterministic") else {}
