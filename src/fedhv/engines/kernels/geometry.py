"""What fixes a convolution besides its tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """Square stride, padding and dilation; `pool` = 2 takes the maximum of 2×2 windows and ReLU behind the convolution.

    Only depthwise convolutions are dilated.
    """

    stride: int = 1
    padding: int = 0
    pool: int = 1
    dilation: int = 1

    def output(self, height: int, width: int, kernel_height: int, kernel_width: int) -> tuple[int, int]:
        """Rows and columns of the result; a window that is not whole is left out."""
        rows = (height + 2 * self.padding - self.dilation * (kernel_height - 1) - 1) // self.stride + 1
        columns = (width + 2 * self.padding - self.dilation * (kernel_width - 1) - 1) // self.stride + 1
        return rows // self.pool, columns // self.pool
