"""Long computations of one call that a signal can end: they check before every operation.

Signals wait for the end of a round on a GPU, whose libraries may not recover from an interruption. Between two
operations nothing is interrupted. A thread would be no help here: streams, modes and switches of torch belong to a
thread, and what it had begun would go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Interruptible(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """In this context every operation, in the backward pass too, raises KeyboardInterrupt if `stopping` is true."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stopping = stopping

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would otherwise load its compiler, as for `repeatable.Watch`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of `func`."""
        if self._stopping():
            raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))
