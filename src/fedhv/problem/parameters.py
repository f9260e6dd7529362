"""The model as one flat vector θ ∈ R^d, with shared entries and entries of the tasks' heads.

Parameters with `requires_grad=False` are no part of it: they stay as the model's factory makes them. The running
statistics of BatchNorm layers are, under a policy that has local training update them (see `norms`).

Server arithmetic, checkpoints and messages are plain vector arithmetic. `Network` runs the module on views of the
vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from fedhv.problem.norm_policy import Norm
from fedhv.problem.norms import AveragedNorm
from fedhv.support.errors import InputError


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
        parameters: dict[str, Tensor] = dict(trained_entries(module))
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
        if not (running := running_statistics(module)):
            return cls(tuple(parameters), tuple(p.shape for p in parameters.values()), tuple(owners), tasks)
        # The examples of all tasks pass through a layer, also in a head, so its statistics belong to no task.
        owners += [-1] * len(running)
        marks = [name in running for name in (*parameters, *running)]
        kept = [any(_within(name, prefix) for prefix in _residents(module)) for name in (*parameters, *running)]
        entries = parameters | running
        shapes = tuple(each.shape for each in entries.values())
        resident = tuple(kept) if any(kept) else ()
        return cls(tuple(entries), shapes, tuple(owners), tasks, statistics=tuple(marks), resident=resident)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of scalars in every parameter."""
        return [shape.numel() for shape in self.shapes]

    @cached_property
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
        if each.numel() == each.shape[-1]:  # one client: an index with d numbers takes a hundred times as long
            parts = zip(self.owners, self.sizes, strict=True)
            return torch.cat([each[..., owner, None].expand(*each.shape[:-1], size) for owner, size in parts], dim=-1)
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
    entries = trained_entries(module) | running_statistics(module)
    return torch.cat([each.detach().reshape(-1).float() for each in entries.values()])


def trained_entries(module: nn.Module) -> dict[str, Tensor]:
    """The parameters that are entries of θ."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def norm_layers(module: nn.Module) -> dict[str, AveragedNorm]:
    """The layers whose statistics are entries of θ."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, AveragedNorm)}


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics that are entries of θ, in the order of `AveragedNorm.statistics`."""
    names = ("running_mean", "running_var")
    return {_join(where, name): getattr(layer, name) for where, layer in norm_layers(module).items() for name in names}


def _residents(module: nn.Module) -> list[str]:
    """The layers that stay with the clients."""
    return [name for name, layer in norm_layers(module).items() if layer.resident]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")
