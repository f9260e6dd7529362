"""One step of a recurrence, in plain operators; the order of the gates is that of torch's parameters.

Every cell takes the inputs' contribution to the gates, which a layer computes for all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv.engines.formulations.mapped import is_mapped

CellState = tuple[Tensor, ...]
"""h alone, or h and c of an LSTM."""


@dataclass(frozen=True)
class Hidden:
    """The parameters that act on the hidden state.

    Attributes:
        weight: The weights of all gates.
        bias: The biases of all gates, or None.
        projection: From a cell's output to a smaller h (LSTM with `proj_size`), or None.
    """

    weight: Tensor
    bias: Tensor | None
    projection: Tensor | None = None

    def __call__(self, h: Tensor) -> Tensor:
        """The contribution of h to the gates."""
        return F.linear(h, self.weight, self.bias)


RecurrentCell = Callable[[Tensor, CellState, Hidden], CellState]


def lstm_step(from_inputs: Tensor, state: CellState, hidden: Hidden) -> CellState:
    r"""$c' = f \odot c + i \odot g$ and $h' = o \odot \tanh c'$, projected where there is a projection."""
    h, c = state
    i, f, g, o = (from_inputs + hidden(h)).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if hidden.projection is None else F.linear(h, hidden.projection)), c


def gru_step(from_inputs: Tensor, state: CellState, hidden: Hidden) -> CellState:
    r"""$h' = n + z \odot (h - n)$ with $n = \tanh(W_{in} x + b_{in} + r \odot (W_{hn} h + b_{hn}))$."""
    (h,) = state
    size = h.shape[-1]
    (gates, candidate), (own, own_candidate) = (
        torch.split(each, [2 * size, size], dim=-1) for each in (from_inputs, hidden(h))
    )
    r, z = (gates + own).sigmoid().chunk(2, dim=-1)
    n = torch.tanh(candidate + r * own_candidate)
    return (n + z * (h - n),)


def tanh_step(from_inputs: Tensor, state: CellState, hidden: Hidden) -> CellState:
    r"""$h' = \tanh(W_{ih} x + W_{hh} h + b)$."""
    return (torch.tanh(from_inputs + hidden(state[0])),)


def relu_step(from_inputs: Tensor, state: CellState, hidden: Hidden) -> CellState:
    r"""$h' = \max(0, W_{ih} x + W_{hh} h + b)$."""
    return (torch.relu(from_inputs + hidden(state[0])),)


class LSTMCell(nn.LSTMCell):
    """`nn.LSTMCell` in plain operators where it is mapped over clients."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """h and c after one step."""
        if not is_mapped(input, hx, *self._parameters.values()):
            return super().forward(input, hx)
        return _step(self, lstm_step, input, hx, states=2)


class GRUCell(nn.GRUCell):
    """`nn.GRUCell` in plain operators where it is mapped over clients."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h after one step."""
        if not is_mapped(input, hx, *self._parameters.values()):
            return super().forward(input, hx)
        return _step(self, gru_step, input, None if hx is None else (hx,), states=1)[0]


class RNNCell(nn.RNNCell):
    """`nn.RNNCell` in plain operators where it is mapped over clients."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h after one step."""
        if not is_mapped(input, hx, *self._parameters.values()):
            return super().forward(input, hx)
        step = tanh_step if self.nonlinearity == "tanh" else relu_step
        return _step(self, step, input, None if hx is None else (hx,), states=1)[0]


def _step(cell: nn.RNNCellBase, step: RecurrentCell, inputs: Tensor, state: CellState | None, states: int) -> CellState:
    if state is None:
        state = (inputs.new_zeros(*inputs.shape[:-1], cell.hidden_size, dtype=cell.weight_hh.dtype),) * states
    return step(F.linear(inputs, cell.weight_ih, cell.bias_ih), state, Hidden(cell.weight_hh, cell.bias_hh))
