"""A GRU or LSTM layer over a whole sequence as one differentiable function that maps over clients.

The product with the hidden weights is needed at every time step; everything else is not: the gradient of these weights
is one product over all steps. On a GPU torch's fused kernels compute the gates of a step, forwards and backwards, where
plain operators take a dozen launches.

Tensors have an axis of groups first: directions, and clients where they are mapped. Gates are groups × time × batch ×
(gates · size), the state is groups × batch × size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedhv.engines.kernels.mapping import mapped


class GRUSequence(torch.autograd.Function):
    """The hidden states of a GRU."""

    @staticmethod
    def forward(gates: Tensor, h0: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """h after every step, groups × time × batch × size, and what the backward pass needs."""
        states, kept, h = [], [], h0
        for own in _steps(gates):
            h, work = _gru_cell(own, _hidden(h, weight, bias), h)
            states.append(h)
            kept.append(work)
        return torch.stack(states, dim=1), torch.stack(kept, dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the states and the gates."""
        _, h0, weight, bias = inputs
        ctx.bias = bias is not None
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(h0, weight, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of gates, first state, weight and bias."""
        h0, weight, states, kept = ctx.saved_tensors
        dh = torch.zeros_like(h0)
        from_gates, from_hidden = [], []
        for above, work in zip(reversed(_steps(g)), reversed(_steps(kept)), strict=True):
            dgates, dhidden, own = _gru_cell_backward(above + dh, work)
            dh = torch.baddbmm(own, dhidden, weight)
            from_gates.append(dgates)
            from_hidden.append(dhidden)
        dhiddens = torch.stack(from_hidden[::-1], dim=1)
        dweight, dbias = _of_weights(dhiddens, h0, states, ctx.bias)
        return torch.stack(from_gates[::-1], dim=1), dh, dweight, dbias

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, Tensor], Any]:
        """The groups of all mapped calls in one."""
        (states, kept), split = mapped(GRUSequence, info.batch_size, in_dims, *arguments)
        return (states.unflatten(0, split), kept.unflatten(0, split)), (0, 0)


class LSTMSequence(torch.autograd.Function):
    """The hidden and cell states of an LSTM; its biases are a part of the gates."""

    @staticmethod
    def forward(gates: Tensor, h0: Tensor, c0: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h and c after every step, and what the backward pass needs."""
        hs, cs, kept, h, c = [], [], [], h0, c0
        for own in _steps(gates):
            h, c, work = _lstm_cell(own, _hidden(h, weight, None), c)
            hs.append(h)
            cs.append(c)
            kept.append(work)
        return torch.stack(hs, dim=1), torch.stack(cs, dim=1), torch.stack(kept, dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep the states and the gates."""
        _, h0, c0, weight = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(h0, c0, weight, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor, gc: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of gates, first states and weight."""
        h0, c0, weight, hs, cs, kept = ctx.saved_tensors
        dh, dc = torch.zeros_like(h0), torch.zeros_like(c0)
        after = _steps(cs)
        found = []
        for t in reversed(range(len(after))):
            before = after[t - 1] if t else c0
            dgates, dc = _lstm_cell_backward(g[:, t] + dh, gc[:, t] + dc, before, after[t], kept[:, t])
            dh = dgates @ weight
            found.append(dgates)
        dgates = torch.stack(found[::-1], dim=1)
        dweight, _bias = _of_weights(dgates, h0, hs, False)
        return dgates, dh, dc, dweight

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], Any]:
        """The groups of all mapped calls in one."""
        outputs, split = mapped(LSTMSequence, info.batch_size, in_dims, *arguments)
        return tuple(output.unflatten(0, split) for output in outputs), (0, 0, 0)


def gru_sequence(gates: Tensor, h0: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """h of a GRU after every step."""
    states: Tensor = GRUSequence.apply(gates, h0, weight, bias)[0]  # type: ignore[no-untyped-call]
    return states


def lstm_sequence(gates: Tensor, h0: Tensor, c0: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of an LSTM after every step."""
    hs, cs, _ = LSTMSequence.apply(gates, h0, c0, weight)  # type: ignore[no-untyped-call]
    return hs, cs


def _steps(sequence: Tensor) -> list[Tensor]:
    """The time steps, each contiguous."""
    return list(sequence.transpose(0, 1).contiguous().unbind())


def _hidden(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W h + b of every group."""
    return h @ weight.mT if bias is None else torch.baddbmm(bias[:, None], h, weight.mT)


def _of_weights(dhidden: Tensor, first: Tensor, states: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
    """The gradients of weight and bias: sums over all steps of dhidden × the state before."""
    before = torch.cat([first[:, None], states[:, :-1]], dim=1)
    dweight = dhidden.flatten(1, 2).mT @ before.flatten(1, 2)
    return dweight, dhidden.sum(dim=(1, 2)) if bias else None


# --- cells: groups × batch × … ----------------------------------------------------------------------------------


def _fused(gates: Tensor) -> bool:
    """Whether torch has a kernel for the gates."""
    return gates.device.type == "cuda"


def _gru_cell(gates: Tensor, hidden: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    r"""h' = n + z (h − n), and r, z, n, h and $W_{hn} h + b_{hn}$ for the backward pass."""
    if _fused(gates):
        flat = (each.flatten(0, 1) for each in (gates, hidden, h))
        after, work = torch.ops.aten._thnn_fused_gru_cell(*flat)
        return after.view_as(h), work.view(*h.shape[:2], -1)
    (ir, iz, inn), (hr, hz, hn) = gates.chunk(3, dim=-1), hidden.chunk(3, dim=-1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(inn + r * hn)
    return n + z * (h - n), torch.cat([r, z, n, h, hn], dim=-1)


def _gru_cell_backward(g: Tensor, work: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the inputs' gates, of the hidden gates, and of h as far as it does not pass the gates."""
    if _fused(g):
        found = torch.ops.aten._thnn_fused_gru_cell_backward(g.flatten(0, 1), work.flatten(0, 1), False)
        dgates, dhidden, dh = (each.view(*g.shape[:2], -1) for each in found[:3])
        return dgates, dhidden, dh
    r, z, n, h, hn = work.chunk(5, dim=-1)
    dn = g * (1 - z) * (1 - n * n)
    dz = g * (h - n) * z * (1 - z)
    dr = dn * hn * r * (1 - r)
    return torch.cat([dr, dz, dn], dim=-1), torch.cat([dr, dz, dn * r], dim=-1), g * z


def _lstm_cell(gates: Tensor, hidden: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h' and c', and the gates i, f, g and o for the backward pass."""
    if _fused(gates):
        flat = (each.flatten(0, 1) for each in (gates, hidden, c))
        h, after, work = torch.ops.aten._thnn_fused_lstm_cell(*flat)
        return h.view_as(c), after.view_as(c), work.view(*c.shape[:2], -1)
    i, f, g, o = (gates + hidden).chunk(4, dim=-1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], dim=-1)


def _lstm_cell_backward(dh: Tensor, dc: Tensor, before: Tensor, after: Tensor, work: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the gates and of c."""
    if _fused(dh):
        flat = (each.flatten(0, 1) for each in (dh, dc, before, after, work))
        dgates, dbefore, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*flat, False)
        return dgates.view(*dh.shape[:2], -1), dbefore.view_as(dc)
    i, f, g, o = work.chunk(4, dim=-1)
    t = after.tanh()
    dc = dc + dh * o * (1 - t * t)
    parts = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)]
    return torch.cat(parts, dim=-1), dc * f
