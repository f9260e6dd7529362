"""`Tensor.view` for models whose images are laid out channels last, where the memory cannot be viewed in the new shape.

Models flatten with `x.view(len(x), -1)`. This needs the layout that torch has by default, and convolutions run faster
with channels last. Such a model computes `reshape` instead, which copies where it has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NOT_VIEWABLE = "view size is not compatible"
"""How torch's error for such a view begins."""


class Reshaping(TorchFunctionMode):
    """In this context `view` is `reshape`. A view of another type stays a view."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function, or `reshape` in its place."""
        if func is Tensor.view_as:
            func = Tensor.reshape_as
        elif func is Tensor.view and not kwargs and not isinstance(args[1], torch.dtype):
            func = Tensor.reshape
        return func(*args, **(kwargs or {}))


def not_viewable(error: RuntimeError) -> bool:
    """Whether an error says that a tensor's memory cannot be viewed in another shape."""
    return str(error).startswith(NOT_VIEWABLE)
