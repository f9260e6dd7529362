"""The model as one flat vector θ ∈ R^d, with shared entries and entries of the tasks' heads.

Parameters with `requires_grad=False` are not part of θ and are not trained.

Server arithmetic, checkpoints and messages are plain vector arithmetic. `Network` runs the module on views of the
vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedhv.problem.dropout import Draws
from fedhv.problem.pooling import with_fast_pooling
from fedhv.problem.trees import Inputs, arguments
from fedhv.support.errors import InputError

ModuleSlot = tuple[dict[str, Any], str]
"""A module's dictionary of parameters and a name in it. During a call it contains a view of θ."""


@dataclass(frozen=True)
class Layout:
    """The position of each parameter in the flat vector.

    Attributes:
        names: Parameter names in the module's order.
        shapes: Their shapes.
        owners: For every parameter the task of its head, or -1 if it is shared.
        tasks: The number of tasks.
        partial: Whether labels may be missing; replies then contain their numbers.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    owners: tuple[int, ...]
    tasks: int
    partial: bool = False

    @classmethod
    def of(cls, module: nn.Module, tasks: int, heads: Sequence[str] | None = None) -> Layout:
        """The layout of a module."""
        parameters = _trained(module)
        if heads is None:
            modules = getattr(module, "heads", None)
            split = isinstance(modules, nn.ModuleList) and len(modules) == tasks
            heads = [f"heads.{i}" for i in range(tasks)] if split else []
            # If nothing is outside the heads, or a head is frozen or used twice, all parameters are shared.
            alone = all(_within(name, "heads") for name in parameters)
            if alone or not all(any(_within(name, prefix) for name in parameters) for prefix in heads):
                heads = []
        elif len(heads) != tasks:
            raise InputError(f"Parameter `heads` should name one prefix per task ({tasks}). Found {list(heads)}.")
        for prefix in heads:
            if not any(_within(name, prefix) for name in parameters):
                raise InputError(f"The head '{prefix}' of the model should have parameters to train. Found none.")
        owners = [next((i for i, p in enumerate(heads) if _within(name, p)), -1) for name in parameters]
        if parameters and -1 not in owners:
            raise InputError(f"Parameter `heads` should leave parameters to share. Found none outside {list(heads)}.")
        return cls(tuple(parameters), tuple(p.shape for p in parameters.values()), tuple(owners), tasks)

    @property
    def sizes(self) -> list[int]:
        """The number of scalars in every parameter."""
        return [shape.numel() for shape in self.shapes]

    @property
    def d(self) -> int:
        """The length of θ."""
        return sum(self.sizes)

    @property
    def d_shared(self) -> int:
        """The number of shared scalars."""
        return sum(size for size, owner in zip(self.sizes, self.owners, strict=True) if owner < 0)

    def d_head(self, task: int) -> int:
        """The number of scalars of one task's head."""
        return sum(size for size, owner in zip(self.sizes, self.owners, strict=True) if owner == task)

    def shared(self, vectors: Tensor) -> Tensor:
        """The shared part of vectors whose last axis is θ's."""
        mine = [i for i, owner in enumerate(self.owners) if owner < 0]
        if mine == list(range(len(mine))):  # usually they come first: one copy instead of one per parameter
            # Always a copy, although a view would do: the last bits of products depend on memory alignment.
            return vectors[..., : self.d_shared].clone(memory_format=torch.contiguous_format)
        parts = torch.split(vectors, self.sizes, dim=-1)
        return torch.cat([part for part, owner in zip(parts, self.owners, strict=True) if owner < 0], dim=-1)

    def spread(self, shared: Tensor, heads: Tensor) -> Tensor:
        """One number for every entry of θ: the number of its task for entries of a head, the shared one for others.

        Both may have leading axes: `shared` … and `heads` … × m give … × d.
        """
        each = torch.cat([heads, shared[..., None]], dim=-1)  # owner −1 is the last
        owners = torch.tensor(self.owners, device=each.device) % (self.tasks + 1)
        return each[..., torch.repeat_interleave(owners, torch.tensor(self.sizes, device=each.device))]

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Named views into θ."""
        parts = torch.split(theta, self.sizes)
        return {n: part.view(s) for n, part, s in zip(self.names, parts, self.shapes, strict=True)}


def flatten(module: nn.Module) -> Tensor:
    """θ from a module's parameters."""
    return torch.cat([p.detach().reshape(-1).float() for p in _trained(module).values()])


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


class Network:
    """A module as a function of the flat parameter vector: `network(theta, inputs, training=…)`."""

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        tasks: int,
        heads: Sequence[str] | None,
        device: torch.device | str,
    ) -> None:
        # Random buffers and frozen layers of the factory are the same in every run, process and node.
        module = _made(factory, 0)
        if not isinstance(module, nn.Module):
            raise InputError(f"The model factory should return a torch module. Found {type(module).__name__}.")
        refuse_running_statistics(module)
        for name, parameter in module.named_parameters():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise InputError(
                    f"The model's parameter '{name}' should have a shape. Found a lazy layer; give its size."
                )
        self.module = module.to(device) if torch.device(device).type != "cpu" else with_fast_pooling(module)
        self._draws: bool | None = None
        self.layout = Layout.of(module, tasks, heads)
        if self.layout.d == 0:
            raise InputError("The model should have parameters to train. Found none.")

    @property
    def module(self) -> nn.Module:
        """The module. It may be replaced by another one with the same parameters."""
        return self._module

    @module.setter
    def module(self, module: nn.Module) -> None:
        self._module, self._places = module, _places(module)

    def __call__(
        self, theta: Tensor, inputs: Inputs, *, training: bool, key: int | Tensor | None = None
    ) -> list[Tensor]:
        """The m outputs of the model with parameters θ; a tuple's parts are its arguments, a dict's its keywords.

        `key` fixes the random draws of this pass.
        """
        if self.module.training != training:
            self.module.train(training)
        parameters = self.layout.unflatten(theta)
        # If a model draws nothing in its first training pass, later calls are not intercepted; that saves a tenth of a
        # small step.
        draws = None if key is None or self._draws is False else Draws(key)
        with nullcontext() if draws is None else draws:
            if torch.compiler.is_compiling():
                outputs = torch.func.functional_call(self.module, parameters, *arguments(inputs))
            else:
                outputs = self._call(parameters, inputs)
        if draws is not None and training:
            self._draws = draws.count > 0
        if isinstance(outputs, Tensor):
            outputs = [outputs]
        if not isinstance(outputs, list | tuple):
            kind = type(outputs).__name__
            raise InputError(f"The model should return a list of outputs, one per task. Found {kind}.")
        if len(outputs) != self.layout.tasks:
            raise InputError(
                f"The model should return a list of {self.layout.tasks} outputs, one per task. Found {len(outputs)}."
            )
        return list(outputs)

    def state_dict(self, theta: Tensor) -> dict[str, Tensor]:
        """The module's state dict with the values of θ. A parameter that several modules share has several names."""
        values = self.layout.unflatten(theta)
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        everywhere = self.module.named_parameters(remove_duplicate=False)
        return self.module.state_dict() | {
            name: values[names[parameter]] for name, parameter in everywhere if names[parameter] in values
        }

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
    """For every parameter the dictionaries of the modules that use it."""
    names = {parameter: name for name, parameter in _trained(module).items()}
    found: dict[str, list[ModuleSlot]] = {name: [] for name in names.values()}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter in names:
                found[names[parameter]].append((owner._parameters, name))
    return found


def refuse_running_statistics(module: nn.Module) -> None:
    """Reject layers whose buffers change in training: they are not part of θ and would be lost."""
    for name, layer in module.named_modules():
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if batch or (isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats):
            raise InputError(
                f"The model has {type(layer).__name__} at '{name}'. Its statistics depend on the minibatch and are "
                "not parameters: averaging clients would mix or lose them. Use nn.GroupNorm instead."
            )


def initial_model(factory: Callable[[], nn.Module], seed: int) -> Tensor:
    """θ⁰ from the model's initialisation, as a function of the seed."""
    return flatten(_made(factory, seed))


def _made(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model from the factory, seeded; torch's generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()
