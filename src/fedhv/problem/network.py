"""The module as a function of the flat parameter vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedhv.problem.devices import FLOAT32_ONLY, moved
from fedhv.problem.drawing import Drawing, with_keyed_dropout
from fedhv.problem.initial import make_model
from fedhv.problem.norm_policy import Norm
from fedhv.problem.norms import apply_norm, norm_note
from fedhv.problem.parameters import Layout, norm_layers, running_statistics, trained_entries
from fedhv.problem.pooling import with_fast_pooling
from fedhv.problem.trees import Inputs, arguments
from fedhv.problem.views import Reshaping, not_viewable
from fedhv.support.errors import InputError

ModuleSlot = tuple[dict[str, Any], str]
"""A module's dictionary of parameters and a name in it. During a call it contains a view of θ."""

Theta = Tensor | dict[str, Tensor]
"""θ as one vector, or as named parameters, such as those of `Network.leaves`."""


class Network:
    """A module as a function of the flat parameter vector: `network(theta, inputs, training=…)`."""

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        tasks: int,
        heads: Sequence[str] | None,
        device: torch.device | str,
        norm: Norm = "refuse",
    ) -> None:
        # Random buffers and frozen layers of the factory are the same in every run, process and node.
        module = make_model(factory, 0)
        note = norm_note(norm, apply_norm(module, norm))
        self.notes = [] if note is None else [note]
        """What the user should know about how the model is changed."""
        for name, parameter in module.named_parameters():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise InputError(
                    f"The model's parameter '{name}' should have a shape. Found a lazy layer; give its size."
                )
            if parameter.is_complex() and parameter.requires_grad:
                raise InputError(
                    f"The model's parameter '{name}' should be real. Found {parameter.dtype}; keep its real and "
                    "imaginary parts, and join them by torch.complex in forward."
                )
        self._drawing = Drawing()
        on_cpu = torch.device(device).type == "cpu"
        self.module = with_keyed_dropout(with_fast_pooling(module), self._drawing) if on_cpu else module.to(device)
        # Apple's GPU has no double precision, which sums over examples need: it computes only the model's passes.
        self._away = torch.device(device) if torch.device(device).type in FLOAT32_ONLY else None
        self.layout = replace(Layout.of(module, tasks, heads), norm=norm)
        self._reshapes = False
        self._held: Tensor | None = None
        self._leaves: dict[str, Tensor] = {}
        if self.layout.d == 0:
            raise InputError("The model should have parameters to train. Found none.")

    @property
    def module(self) -> nn.Module:
        """The module. It may be replaced by another one with the same parameters."""
        return self._module

    @module.setter
    def module(self, module: nn.Module) -> None:
        self._module, self._places, self._norms = module, _places(module), list(norm_layers(module).values())

    def __call__(
        self, theta: Theta, inputs: Inputs, *, training: bool, key: int | Tensor | None = None
    ) -> list[Tensor]:
        """The m outputs of the model with parameters θ; a tuple's parts are its arguments, a dict's its keywords.

        `key` fixes the random draws of this pass.
        """
        if self.module.training != training:
            self.module.train(training)
        if self._away is not None:
            theta, inputs = theta if isinstance(theta, dict) else theta.to(self._away), moved(inputs, self._away)
        parameters = theta if isinstance(theta, dict) else self.layout.unflatten(theta)

        def forward() -> Any:
            with Reshaping() if self._reshapes else nullcontext():
                if torch.compiler.is_compiling():
                    return torch.func.functional_call(self.module, parameters, *arguments(inputs))
                return self._call(parameters, inputs)

        def drawn() -> Any:
            for layer in self._norms:
                layer.fresh = None
            return forward() if key is None or not training else self._drawing(key, forward)

        try:
            outputs = drawn()
        except RuntimeError as error:
            if self._reshapes or not not_viewable(error):
                raise
            self._reshapes = True  # from the first such pass on; its draws are made again from their key
            outputs = drawn()
        if isinstance(outputs, Tensor):
            outputs = [outputs]
        if not isinstance(outputs, list | tuple):
            kind = type(outputs).__name__
            raise InputError(f"The model should return a list of outputs, one per task. Found {kind}.")
        if len(outputs) != self.layout.tasks:
            raise InputError(
                f"The model should return a list of {self.layout.tasks} outputs, one per task. Found {len(outputs)}."
            )
        return list(outputs) if self._away is None else [moved(each, torch.device("cpu")) for each in outputs]

    def leaves(self, theta: Tensor) -> dict[str, Tensor]:
        """The parameters at θ, each of which takes a gradient of its own; valid until the next call.

        Gradients need not pass through views of a vector, and the views are made once: 2 % of a small model's step.
        """
        held = self._held
        if self._away is not None:
            parts = self.layout.unflatten(theta.detach().to(self._away))
            return {name: part.requires_grad_() for name, part in parts.items()}
        if held is None or held.dtype != theta.dtype:
            self._held = held = torch.empty_like(theta)
            self._leaves = {name: part.requires_grad_() for name, part in self.layout.unflatten(held).items()}
        with torch.no_grad():
            held.copy_(theta)
        return self._leaves

    def prepare(self, keys: Sequence[int]) -> None:
        """Make random draws of coming training passes with these keys in advance, if that is faster."""
        self._drawing.prepare(keys)

    def statistics(self) -> Tensor:
        """The running statistics after the last training pass, in θ's order, of a model that has some in θ."""
        found = torch.cat([each for layer in self._norms for each in layer.statistics()])
        return found if self._away is None else found.cpu()

    def state_dict(self, theta: Tensor) -> dict[str, Tensor]:
        """The module's state dict with the values of θ. A parameter that several modules share has several names."""
        values = self.layout.unflatten(theta)
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        everywhere = self.module.named_parameters(remove_duplicate=False)
        named = {name: values[names[parameter]] for name, parameter in everywhere if names[parameter] in values}
        running = self.module.named_buffers(remove_duplicate=False)
        own = {buffer: name for name, buffer in self.module.named_buffers()}
        named |= {name: values[own[buffer]] for name, buffer in running if own[buffer] in values}
        return self.module.state_dict() | named

    def _call(self, parameters: dict[str, Tensor], inputs: Inputs) -> Any:
        """As `functional_call`, without repeated lookups, which take an eighth of a small model's step."""
        positional, named = arguments(inputs)
        own = [(slots, name, slots[name]) for places in self._places.values() for slots, name in places]
        try:
            for whole, value in parameters.items():
                for slots, name in self._places[whole]:
                    slots[name] = value
            return self.module(*positional, **named)
        finally:
            for slots, name, parameter in own:
                slots[name] = parameter


def _places(module: nn.Module) -> dict[str, list[ModuleSlot]]:
    """For every entry of θ where its module keeps it: in several places, where modules share it."""
    names = {entry: name for name, entry in (trained_entries(module) | running_statistics(module)).items()}
    found: dict[str, list[ModuleSlot]] = {name: [] for name in names.values()}
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, entry in table.items():
                if entry is not None and entry in names:
                    found[names[entry]].append((table, name))
    return found
