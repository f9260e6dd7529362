"""The model as one flat vector θ ∈ R^d, with shared entries and entries of the tasks' heads.

Parameters with `requires_grad=False` are no part of it: they stay as the model's factory makes them. The running
statistics of BatchNorm layers are, under a policy that has local training update them (see `norms`).

Server arithmetic, checkpoints and messages are plain vector arithmetic. `Network` runs the module on views of the
vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fedhv.problem.drawing import Drawing, with_keyed_dropout
from fedhv.problem.norm_policy import Norm
from fedhv.problem.norms import AveragedNorm, apply_norm, norm_note
from fedhv.problem.pooling import with_fast_pooling
from fedhv.problem.trees import Inputs, arguments, tree_map
from fedhv.support.errors import InputError

ModuleSlot = tuple[dict[str, Any], str]
"""A module's dictionary of parameters and a name in it. During a call it contains a view of θ."""


FLOAT32_ONLY = ("mps",)
"""Devices without double precision."""


def arithmetic_device(device: torch.device | str) -> torch.device:
    """Where vectors, sums and examples are, for models that are computed on a device."""
    device = torch.device(device)
    return torch.device("cpu") if device.type in FLOAT32_ONLY else device


def moved(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs or outputs on another device."""
    return tree_map(lambda leaf: leaf.to(device), inputs)


@dataclass(frozen=True)
class Layout:
    """The position of each parameter in the flat vector.

    Attributes:
        names: Parameter names in the module's order.
        shapes: Their shapes.
        owners: For every parameter the task whose head it belongs to, or -1 where it is shared.
        tasks: How many tasks there are.
        partial: Whether labels may be missing: replies then say how many there are.
        statistics: Which of them are running statistics of BatchNorm layers: they have no gradient, and a training pass
            gives their new values. Empty where there are none.
        resident: Which of them stay with the clients: they do not travel, and the server's copy does not change. Empty
            where there are none.
        norm: The policy for BatchNorm.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    owners: tuple[int, ...]
    tasks: int
    partial: bool = False
    statistics: tuple[bool, ...] = ()
    resident: tuple[bool, ...] = ()
    norm: Norm = "refuse"

    @classmethod
    def of(cls, module: nn.Module, tasks: int, heads: Sequence[str] | None = None) -> Layout:
        """Read the layout off a module."""
        parameters: dict[str, Tensor] = dict(_trained(module))
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
        if not (running := _statistics(module)):
            return cls(tuple(parameters), tuple(p.shape for p in parameters.values()), tuple(owners), tasks)
        # The examples of all tasks pass through a layer, also in a head, so its statistics belong to no task.
        owners += [-1] * len(running)
        marks = [name in running for name in (*parameters, *running)]
        kept = [any(_within(name, prefix) for prefix in _residents(module)) for name in (*parameters, *running)]
        entries = parameters | running
        shapes = tuple(each.shape for each in entries.values())
        resident = tuple(kept) if any(kept) else ()
        return cls(tuple(entries), shapes, tuple(owners), tasks, statistics=tuple(marks), resident=resident)

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
        """How many scalars all tasks share; statistics and what stays with the clients are not among them."""
        return sum(size for size, mine in zip(self.sizes, self._shared, strict=True) if mine)

    @property
    def d_statistics(self) -> int:
        """How many scalars are running statistics."""
        return sum(size for size, mark in zip(self.sizes, self.statistics, strict=False) if mark)

    @property
    def _shared(self) -> list[bool]:
        """Which parameters all tasks share."""
        no = (False,) * len(self.owners)
        marks = zip(self.owners, self.statistics or no, self.resident or no, strict=True)
        return [owner < 0 and not statistic and not resident for owner, statistic, resident in marks]

    def d_head(self, task: int) -> int:
        """The number of scalars of one task's head."""
        return sum(size for size, owner in zip(self.sizes, self.owners, strict=True) if owner == task)

    def shared(self, vectors: Tensor) -> Tensor:
        """The shared part of vectors whose last axis is θ's."""
        mine = [i for i, shared in enumerate(self._shared) if shared]
        if mine == list(range(len(mine))):  # mostly they come first: one copy, not one for every parameter
            # A copy always, also where it could be a view: products depend in their last bits on where numbers lie.
            return vectors[..., : self.d_shared].clone(memory_format=torch.contiguous_format)
        parts = torch.split(vectors, self.sizes, dim=-1)
        return torch.cat([part for part, shared in zip(parts, self._shared, strict=True) if shared], dim=-1)

    def spread(self, shared: Tensor, heads: Tensor) -> Tensor:
        """One number for every entry of θ: the number of its task for entries of a head, the shared one for others.

        Both may have leading axes: `shared` … and `heads` … × m give … × d.
        """
        each = torch.cat([heads, shared[..., None]], dim=-1)  # owner −1 is the last
        owners = torch.tensor(self.owners, device=each.device) % (self.tasks + 1)
        return each[..., torch.repeat_interleave(owners, torch.tensor(self.sizes, device=each.device))]

    def mask(self, marks: Sequence[bool]) -> Tensor:
        """One truth value for every entry of θ, from one for every parameter; none marks none."""
        marked = list(marks) or [False] * len(self.names)
        return torch.repeat_interleave(torch.tensor(marked), torch.tensor(self.sizes))

    @cached_property
    def shared_entries(self) -> Tensor:
        """Which entries of θ all tasks share."""
        return self.mask(self._shared)

    @cached_property
    def statistic_entries(self) -> Tensor:
        """Which entries of θ are running statistics."""
        return self.mask(self.statistics)

    @cached_property
    def resident_entries(self) -> Tensor:
        """Which entries of θ stay with the clients."""
        return self.mask(self.resident)

    @cached_property
    def travelling(self) -> Layout:
        """The layout of what is sent between server and clients."""
        if not self.resident:
            return self
        there = [i for i, stays in enumerate(self.resident) if not stays]
        return replace(
            self,
            names=tuple(self.names[i] for i in there),
            shapes=tuple(self.shapes[i] for i in there),
            owners=tuple(self.owners[i] for i in there),
            statistics=tuple(self.statistics[i] for i in there),
            resident=(),
        )

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Named views into θ."""
        parts = torch.split(theta, self.sizes)
        return {n: part.view(s) for n, part, s in zip(self.names, parts, self.shapes, strict=True)}


def flatten(module: nn.Module) -> Tensor:
    """θ from a module's parameters."""
    entries = _trained(module) | _statistics(module)
    return torch.cat([each.detach().reshape(-1).float() for each in entries.values()])


def _trained(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _norms(module: nn.Module) -> dict[str, AveragedNorm]:
    """The layers whose statistics are entries of θ."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, AveragedNorm)}


def _statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics that are entries of θ, in the order of `AveragedNorm.statistics`."""
    names = ("running_mean", "running_var")
    return {_join(where, name): getattr(layer, name) for where, layer in _norms(module).items() for name in names}


def _residents(module: nn.Module) -> list[str]:
    """The layers that stay with the clients."""
    return [name for name, layer in _norms(module).items() if layer.resident]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


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
        norm: Norm = "refuse",
    ) -> None:
        # Random buffers and frozen layers of the factory are the same in every run, process and node.
        module = make_model(factory, 0)
        if not isinstance(module, nn.Module):
            raise InputError(f"The model factory should return a torch module. Found {type(module).__name__}.")
        note = norm_note(norm, apply_norm(module, norm))
        self.notes = [] if note is None else [note]
        """What the user should know about how the model is changed."""
        for name, parameter in module.named_parameters():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise InputError(
                    f"The model's parameter '{name}' should have a shape. Found a lazy layer; give its size."
                )
        self._drawing = Drawing()
        on_cpu = torch.device(device).type == "cpu"
        self.module = with_keyed_dropout(with_fast_pooling(module), self._drawing) if on_cpu else module.to(device)
        # Apple's GPU has no double precision, which sums over examples need: it computes only the model's passes.
        self._away = torch.device(device) if torch.device(device).type in FLOAT32_ONLY else None
        self.layout = replace(Layout.of(module, tasks, heads), norm=norm)
        if self.layout.d == 0:
            raise InputError("The model should have parameters to train. Found none.")

    @property
    def module(self) -> nn.Module:
        """The module. It may be replaced by another one with the same parameters."""
        return self._module

    @module.setter
    def module(self, module: nn.Module) -> None:
        self._module, self._places, self._norms = module, _places(module), list(_norms(module).values())

    def __call__(
        self, theta: Tensor, inputs: Inputs, *, training: bool, key: int | Tensor | None = None
    ) -> list[Tensor]:
        """The m outputs of the model with parameters θ; a tuple's parts are its arguments, a dict's its keywords.

        `key` fixes the random draws of this pass.
        """
        if self.module.training != training:
            self.module.train(training)
        for layer in self._norms:
            layer.fresh = None
        if self._away is not None:
            theta, inputs = theta.to(self._away), moved(inputs, self._away)
        parameters = self.layout.unflatten(theta)

        def forward() -> Any:
            if torch.compiler.is_compiling():
                return torch.func.functional_call(self.module, parameters, *arguments(inputs))
            return self._call(parameters, inputs)

        outputs = forward() if key is None or not training else self._drawing(key, forward)
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
    names = {entry: name for name, entry in (_trained(module) | _statistics(module)).items()}
    found: dict[str, list[ModuleSlot]] = {name: [] for name in names.values()}
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, entry in table.items():
                if entry is not None and entry in names:
                    found[names[entry]].append((table, name))
    return found


def initial_model(factory: Callable[[], nn.Module], seed: int, norm: Norm = "refuse") -> Tensor:
    """θ⁰ from the model's own initialisation, the same for the same seed whatever ran before."""
    module = make_model(factory, seed)
    if norm != "refuse":
        apply_norm(module, norm)
    return flatten(module)


def make_model(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model from the factory, seeded; torch's generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()
