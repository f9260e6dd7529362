"""GroupNorm of n clients' images, each client with its own scale and shift, with the activation behind it, in Triton.

One program takes one group of one image, which lies in memory as H·W short rows of channels. Small groups stay in
registers. A program goes over larger ones twice; the second time they come from the cache, so that memory is read once
and written once either way.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fedhv.engines.kernels.activation_kernels import activate, through_activation


@triton.jit
def normalise_kernel(
    x, gamma, beta, y, mean, scale,
    sgn, sbn,
    IMAGES, EPS,
    C: tl.constexpr, POSITIONS: tl.constexpr, GROUPS: tl.constexpr, ACTIVATION: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = γ (x − mean) · scale + β, with scale = 1/√(variance + EPS), and the activation of it."""
    D: tl.constexpr = C // GROUPS
    n, group, part = _whose(IMAGES, GROUPS)
    c = tl.arange(0, BC)
    x += part // GROUPS * (POSITIONS * C) + group * D
    y += part // GROUPS * (POSITIONS * C) + group * D
    weight = tl.load(gamma + n * sgn + group * D + c, mask=c < D, other=0.0).to(tl.float32)
    bias = tl.load(beta + n * sbn + group * D + c, mask=c < D, other=0.0).to(tl.float32)
    # Sums of differences to one of the values: a mean far from 0 costs no digits of the variance.
    origin = tl.load(x).to(tl.float32)
    if POSITIONS <= BP:
        values = _differences(x, origin, tl.arange(0, BP), c, C, D, POSITIONS)
        shift, factor = _shift_and_scale(tl.sum(values), tl.sum(values * values), POSITIONS * D, EPS)
        _store_normal(y, values - shift, tl.arange(0, BP), c, factor, weight, bias, C, D, POSITIONS, ACTIVATION)
    else:
        first = tl.zeros((BP, BC), dtype=tl.float32)
        second = tl.zeros((BP, BC), dtype=tl.float32)
        for start in range(0, POSITIONS, BP):
            values = _differences(x, origin, start + tl.arange(0, BP), c, C, D, POSITIONS)
            first += values
            second += values * values
        shift, factor = _shift_and_scale(tl.sum(first), tl.sum(second), POSITIONS * D, EPS)
        for start in range(0, POSITIONS, BP):
            p = start + tl.arange(0, BP)
            values = _differences(x, origin, p, c, C, D, POSITIONS) - shift
            _store_normal(y, values, p, c, factor, weight, bias, C, D, POSITIONS, ACTIVATION)
    tl.store(mean + part, origin + shift)
    tl.store(scale + part, factor)


@triton.jit
def _differences(x, origin, p, c, C: tl.constexpr, D: tl.constexpr, POSITIONS: tl.constexpr):
    """The values of some positions less the origin; 0 outside."""
    mask = (p < POSITIONS)[:, None] & (c < D)[None, :]
    values = tl.load(x + p[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    return tl.where(mask, values - origin, 0.0)


@triton.jit
def _shift_and_scale(first, second, size, EPS):
    """The mean of differences, and 1/√(variance + EPS), from their sum and the sum of their squares."""
    shift = first / size
    return shift, 1 / tl.sqrt_rn(tl.maximum(second / size - shift * shift, 0.0) + EPS)


@triton.jit
def _store_normal(
    y, centred, p, c, factor, weight, bias,
    C: tl.constexpr, D: tl.constexpr, POSITIONS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    mask = (p < POSITIONS)[:, None] & (c < D)[None, :]
    values = centred * factor * weight[None, :] + bias[None, :]
    values = activate(values, ACTIVATION)
    tl.store(y + p[:, None] * C + c[None, :], values.to(y.dtype.element_ty), mask=mask)


@triton.jit
def normalise_backward_kernel(
    g, x, gamma, beta, mean, scale, dx, dgamma, dbeta,
    sgn, sbn,
    IMAGES,
    C: tl.constexpr, POSITIONS: tl.constexpr, GROUPS: tl.constexpr, ACTIVATION: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx, and this image's parts of dγ and dβ, n × IMAGES × C."""
    D: tl.constexpr = C // GROUPS
    n, group, part = _whose(IMAGES, GROUPS)
    c = tl.arange(0, BC)
    image = part // GROUPS
    x += image * (POSITIONS * C) + group * D
    g += image * (POSITIONS * C) + group * D
    dx += image * (POSITIONS * C) + group * D
    weight = tl.load(gamma + n * sgn + group * D + c, mask=c < D, other=0.0).to(tl.float32)
    bias = tl.load(beta + n * sbn + group * D + c, mask=c < D, other=0.0).to(tl.float32)
    centre, factor = tl.load(mean + part), tl.load(scale + part)
    if POSITIONS <= BP:
        p = tl.arange(0, BP)
        normal, grads = _normal_and_gradient(g, x, p, c, centre, factor, weight, bias, C, D, POSITIONS, ACTIVATION)
        dweight, dbias = tl.sum(grads * normal, axis=0), tl.sum(grads, axis=0)
        along, level = tl.sum(dweight * weight) / (POSITIONS * D), tl.sum(dbias * weight) / (POSITIONS * D)
        _store_gradient(dx, normal, grads, p, c, factor, weight, level, along, C, D, POSITIONS)
    else:
        with_normal = tl.zeros((BP, BC), dtype=tl.float32)
        alone = tl.zeros((BP, BC), dtype=tl.float32)
        for start in range(0, POSITIONS, BP):
            p = start + tl.arange(0, BP)
            normal, grads = _normal_and_gradient(g, x, p, c, centre, factor, weight, bias, C, D, POSITIONS, ACTIVATION)
            with_normal += grads * normal
            alone += grads
        dweight, dbias = tl.sum(with_normal, axis=0), tl.sum(alone, axis=0)
        along, level = tl.sum(dweight * weight) / (POSITIONS * D), tl.sum(dbias * weight) / (POSITIONS * D)
        for start in range(0, POSITIONS, BP):
            p = start + tl.arange(0, BP)
            normal, grads = _normal_and_gradient(g, x, p, c, centre, factor, weight, bias, C, D, POSITIONS, ACTIVATION)
            _store_gradient(dx, normal, grads, p, c, factor, weight, level, along, C, D, POSITIONS)
    tl.store(dgamma + image * C + group * D + c, dweight, mask=c < D)
    tl.store(dbeta + image * C + group * D + c, dbias, mask=c < D)


@triton.jit
def _store_gradient(
    dx, normal, grads, p, c, factor, weight, level, along,
    C: tl.constexpr, D: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    out = factor * (grads * weight[None, :] - level - normal * along)
    mask = (p < POSITIONS)[:, None] & (c < D)[None, :]
    tl.store(dx + p[:, None] * C + c[None, :], out.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def _whose(IMAGES, GROUPS: tl.constexpr):
    """The client, the group, and the number of this part among all images' groups."""
    n = tl.program_id(1).to(tl.int64)
    return n, tl.program_id(0) % GROUPS, n * IMAGES * GROUPS + tl.program_id(0)


@triton.jit
def _normal_and_gradient(
    g, x, p, c, centre, factor, weight, bias,
    C: tl.constexpr, D: tl.constexpr, POSITIONS: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Normalised values, and the gradient of what the activation gets; 0 outside."""
    mask = (p < POSITIONS)[:, None] & (c < D)[None, :]
    at = p[:, None] * C + c[None, :]
    normal = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre) * factor
    grads = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
    return normal, through_activation(grads, normal * weight[None, :] + bias[None, :], ACTIVATION)
