"""Activations of a tile of numbers in Triton, by their names in `activations`. NaN stays NaN, as in torch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activate(a, ACTIVATION: tl.constexpr):
    """The activation of a."""
    if ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)
    elif ACTIVATION == "relu6":
        a = tl.where(a < 0, 0.0, tl.where(a > 6, 6.0, a))
    elif ACTIVATION == "hardswish":
        a = a * tl.where(a < -3, 0.0, tl.where(a > 3, 6.0, a + 3)) / 6
    elif ACTIVATION == "silu":
        a = a / (1 + tl.exp(-a))
    return a


@triton.jit
def through_activation(g, a, ACTIVATION: tl.constexpr):
    """The gradient of the activation's input a from that of its output."""
    if ACTIVATION == "relu":
        g = tl.where(a <= 0, 0.0, g)
    elif ACTIVATION == "relu6":
        g = tl.where((a <= 0) | (a >= 6), 0.0, g)
    elif ACTIVATION == "hardswish":
        g = tl.where(a <= -3, 0.0, tl.where(a < 3, g * (a / 3 + 0.5), g))
    elif ACTIVATION == "silu":
        sigmoid = 1 / (1 + tl.exp(-a))
        g = g * sigmoid * (1 + a * (1 - sigmoid))
    return g
