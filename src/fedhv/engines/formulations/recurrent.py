"""`nn.RNN`, `nn.GRU` and `nn.LSTM` as a loop over time steps, because torch's operators cannot be mapped over clients.

The parameters keep torch's names and layout. The contribution of a layer's inputs to the gates is one matrix product
for all time steps. Each step computes only the product with the hidden state. A GRU or LSTM is one function over the
whole sequence (see `sequence`); an LSTM with projections and an RNN are plain operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fedhv.engines.formulations.cells import CellState, Hidden, RecurrentCell, lstm_step, relu_step, tanh_step
from fedhv.engines.formulations.mapped import is_mapped
from fedhv.engines.formulations.obstacles import PACKED
from fedhv.engines.formulations.sequence import gru_sequence, lstm_sequence

STEPS: dict[str, RecurrentCell] = {"LSTM": lstm_step, "RNN_TANH": tanh_step, "RNN_RELU": relu_step}
"""By the mode of torch's recurrent layers."""
STATES = {"LSTM": 2, "GRU": 1, "RNN_TANH": 1, "RNN_RELU": 1}
"""The number of tensors in the state."""


class RNN(nn.RNN):
    """`nn.RNN` in plain operators where it is mapped over clients, or computed in bf16 on a CPU."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of all time steps and the last hidden state of every layer and direction."""
        return _recur(self, input, hx) if _replaced(self, input, hx) else super().forward(input, hx)


class GRU(nn.GRU):
    """`nn.GRU` in plain operators where it is mapped over clients, or computed in bf16 on a CPU."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of all time steps and the last hidden state of every layer and direction."""
        return _recur(self, input, hx) if _replaced(self, input, hx) else super().forward(input, hx)


class LSTM(nn.LSTM):
    """`nn.LSTM` in plain operators where it is mapped over clients, or computed in bf16 on a CPU."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of all time steps and the last h and c of every layer and direction."""
        return _recur(self, input, hx) if _replaced(self, input, hx) else super().forward(input, hx)


def _replaced(layer: nn.RNNBase, inputs: Any, state: Any) -> bool:
    """Whether torch's operator would fail: mapped over clients, or in bf16 on processors without such instructions."""
    packed = isinstance(inputs, PackedSequence)
    mapped = is_mapped(inputs.data if packed else inputs, state, *layer._parameters.values())
    if packed and mapped:
        raise RuntimeError(PACKED)
    return mapped or (not packed and inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu"))


def _recur(layer: nn.RNNBase, inputs: Tensor, given: Any) -> tuple[Tensor, Any]:
    """Outputs and last state, in the layouts of torch's layer."""
    state: CellState | None = (given,) if isinstance(given, Tensor) else given
    single = inputs.dim() == 2  # one sequence without a batch axis
    time = 1 if layer.batch_first and not single else 0
    steps = inputs.unsqueeze(1) if single else inputs.transpose(0, time)
    if state is not None and single:
        state = tuple(each.unsqueeze(1) for each in state)
    outputs, last = _layers(layer, steps, state)
    if single:
        outputs, last = outputs.squeeze(1), tuple(each.squeeze(1) for each in last)
    else:
        outputs = outputs.transpose(0, time)
    return outputs, last if STATES[layer.mode] > 1 else last[0]


def _layers(layer: nn.RNNBase, inputs: Tensor, state: CellState | None) -> tuple[Tensor, CellState]:
    """All layers on inputs of time × batch × features; the state is layers · directions × batch × size."""
    directions = 2 if layer.bidirectional else 1
    if state is None:
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: STATES[layer.mode]]
        kind = next(layer.parameters()).dtype  # float32 also under autocast, so that states keep their precision
        rows = layer.num_layers * directions
        state = tuple(inputs.new_zeros(rows, inputs.shape[1], size, dtype=kind) for size in sizes)
    initial = list(zip(*(each.unbind(0) for each in state), strict=True))
    last: list[CellState] = []
    whole = layer.mode in ("GRU", "LSTM") and not layer.proj_size
    for depth in range(layer.num_layers):
        began = initial[depth * directions : (depth + 1) * directions]
        if whole:
            both, ended = _sequence(layer, depth, inputs, began)
        else:
            pairs = [_direction(layer, _name(depth, i), inputs, state, bool(i)) for i, state in enumerate(began)]
            both, ended = [outputs for outputs, _ in pairs], [end for _, end in pairs]
        last += ended
        inputs = both[0] if directions == 1 else torch.cat(both, dim=-1)
        if layer.dropout > 0 and depth < layer.num_layers - 1:
            # In the layout of the layer's inputs: the draw of an element depends on its position.
            axis = 1 if layer.batch_first else 0
            inputs = F.dropout(inputs.transpose(0, axis), layer.dropout, layer.training).transpose(0, axis)
    return inputs, tuple(torch.stack(each) for each in zip(*last, strict=True))


def _name(depth: int, backwards: int) -> str:
    """How torch names the parameters of a layer and direction."""
    return f"l{depth}{'_reverse' * backwards}"


def _sequence(
    layer: nn.RNNBase, depth: int, inputs: Tensor, began: Sequence[CellState]
) -> tuple[list[Tensor], list[CellState]]:
    """The outputs and last states of both directions of a GRU or LSTM, which are computed together."""
    names = [_name(depth, i) for i in range(len(began))]
    gates, weights, biases = [], [], []
    for backwards, name in enumerate(names):
        bias_ih, bias_hh = (getattr(layer, f"bias_{part}_{name}") if layer.bias else None for part in ("ih", "hh"))
        if bias_ih is not None and bias_hh is not None and layer.mode == "LSTM":
            bias_ih, bias_hh = bias_ih + bias_hh, None
        own = F.linear(inputs, getattr(layer, f"weight_ih_{name}"), bias_ih)
        gates.append(own.flip(0) if backwards else own)
        weights.append(getattr(layer, f"weight_hh_{name}"))
        biases.append(bias_hh)
    weight = torch.stack(weights)
    # States keep the precision of the parameters, also under autocast.
    together = torch.stack(gates).to(weight.dtype)
    first = [torch.stack(each).to(weight.dtype) for each in zip(*began, strict=True)]
    with torch.autocast(inputs.device.type, enabled=False):
        if layer.mode == "GRU":
            bias = torch.stack([each for each in biases if each is not None]) if biases[0] is not None else None
            states = [gru_sequence(together, first[0], weight, bias)]
        else:
            states = list(lstm_sequence(together, first[0], first[1], weight))
    outputs = [each.flip(0) if backwards else each for backwards, each in enumerate(states[0].unbind(0))]
    return outputs, [tuple(each[i, -1] for each in states) for i in range(len(names))]


def _direction(
    layer: nn.RNNBase, name: str, inputs: Tensor, state: CellState, backwards: bool
) -> tuple[Tensor, CellState]:
    """One layer in one direction."""
    step = STEPS[layer.mode]
    bias_ih, bias_hh = (getattr(layer, f"bias_{part}_{name}") if layer.bias else None for part in ("ih", "hh"))
    if bias_ih is not None and bias_hh is not None:  # the two are only added: all steps do so at once
        bias_ih, bias_hh = bias_ih + bias_hh, None
    projection = getattr(layer, f"weight_hr_{name}") if layer.proj_size else None
    hidden = Hidden(getattr(layer, f"weight_hh_{name}"), bias_hh, projection)
    # `unbind`, because its gradient is one `stack`; the gradient of an index is a tensor of zeros for every step.
    gates = F.linear(inputs, getattr(layer, f"weight_ih_{name}"), bias_ih).unbind(0)
    outputs = []
    for from_inputs in reversed(gates) if backwards else gates:
        state = step(from_inputs, state, hidden)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state
