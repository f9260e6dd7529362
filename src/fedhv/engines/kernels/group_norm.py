"""The stacked GroupNorm as torch operators, like the convolution's: Triton on a GPU, plain operations on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedhv.engines.kernels.activations import ACTIVATIONS
from fedhv.engines.kernels.mapping import alone, mapped
from fedhv.engines.operator import operator


@operator("normalise")
def _normalise(
    x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        return launch.normalise(x, gamma, beta, groups, eps, activation)
    variance, mean = torch.var_mean(x.float().unflatten(2, (groups, -1)), dim=(3, 4, 5), correction=0)
    scale = torch.rsqrt(variance + eps)
    y = ACTIVATIONS[activation].forward(_affine(_normal(x, mean, scale), gamma, beta))
    return _channels_last(y.to(x.dtype)), mean, scale


@_normalise.register_fake
def _(
    x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.new_empty(*x.shape[:2], groups, dtype=torch.float32)
    return _like(x), mean, torch.empty_like(mean)


@operator("normalise_backward")
def _normalise_backward(
    g: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, scale: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    if x.device.type == "cuda":
        from fedhv.engines.kernels import launch

        return launch.normalise_backward(g, x, gamma, beta, mean, scale, activation)
    normal = _normal(x, mean, scale)
    grads = ACTIVATIONS[activation].backward(g.float(), _affine(normal, gamma, beta))
    groups = mean.shape[-1]
    wide = (grads * gamma[:, None, :, None, None]).unflatten(2, (groups, -1))
    normal_groups = normal.unflatten(2, (groups, -1))
    level = wide.mean(dim=(3, 4, 5), keepdim=True)
    along = (wide * normal_groups).mean(dim=(3, 4, 5), keepdim=True)
    dx = scale[..., None, None, None] * (wide - level - normal_groups * along)
    sums = torch.stack([grads * normal, grads]).sum(dim=(2, 4, 5))  # dγ and dβ
    return _channels_last(dx.flatten(2, 3).to(x.dtype)), sums


@_normalise_backward.register_fake
def _(
    g: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, scale: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    n, _, C, _, _ = x.shape
    return _like(x), x.new_empty(2, n, C, dtype=torch.float32)


def _like(x: Tensor) -> Tensor:
    n, B, C, H, W = x.shape
    return x.new_empty(n, B, H, W, C).permute(0, 1, 4, 2, 3)


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


def _normal(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    grouped = x.float().unflatten(2, (mean.shape[-1], -1))
    centred: Tensor = grouped - mean[..., None, None, None]
    return (centred * scale[..., None, None, None]).flatten(2, 3)


def _affine(normal: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return normal * gamma[:, None, :, None, None] + beta[:, None, :, None, None]


class Normalise(torch.autograd.Function):
    """GroupNorm of n clients' images with every client's own γ and β (n × C), and an activation behind it."""

    @staticmethod
    def forward(
        x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, activation: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """y, and what the backward pass needs: every group's mean and 1/√(variance + ε)."""
        y, mean, scale = _normalise(x, gamma, beta, groups, eps, activation)
        return y, mean, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep the input, not the output: the next convolution keeps that."""
        x, gamma, beta, _, _, ctx.activation = inputs
        _, mean, scale = output
        ctx.mark_non_differentiable(mean, scale)
        ctx.set_materialize_grads(False)  # no zeros as gradients of these
        ctx.save_for_backward(x, gamma, beta, mean, scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, γ and β."""
        x, gamma, beta, mean, scale = ctx.saved_tensors
        dx, (dgamma, dbeta) = _normalise_backward(g, x, gamma, beta, mean, scale, ctx.activation)
        return dx, dgamma, dbeta, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, int, int]]:
        """The clients of all mapped calls in one."""
        outputs, split = mapped(Normalise, info.batch_size, in_dims, *arguments)
        return tuple(output.unflatten(0, split) for output in outputs), (0, 0, 0)


def normalise(x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, activation: str) -> Tensor:
    """One client's images B × C × H × W, or anything B × C × …, normalised in float32 whatever it is kept in."""
    images = x if x.ndim == 4 else x.reshape(*x.shape[:2], -1, 1)
    y, _, _ = Normalise.apply(images[None], gamma[None], beta[None], groups, eps, activation)
    out = alone(y)
    return out if x.ndim == 4 else out.reshape(x.shape)
