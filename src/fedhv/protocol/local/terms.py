"""Additional terms of a client's objective, defined by their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A term that is added to the tasks' losses in the local objective, defined by its gradient.

    Subclasses are frozen dataclasses of tensors shaped like θ and of numbers. In a stack the tensors have one row for
    each client, so `gradient` should work elementwise along the last axis.
    """

    @abstractmethod
    def gradient(self, theta: Tensor) -> Tensor:
        """Its gradient at θ."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}

    @property
    def kind(self) -> tuple[Any, ...]:
        """Terms with equal kind can be stacked: their class and their numbers."""
        numbers = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name not in self.tensors)
        return type(self), tuple(numbers)


@dataclass(frozen=True, eq=False)
class Proximal(Term):
    r"""$\frac{\mu}{2}\|\theta - \theta_0\|^2$: FedProx keeps clients near the model that they received."""

    mu: float
    anchor: Tensor

    def gradient(self, theta: Tensor) -> Tensor:
        """μ(θ − θ₀)."""
        return self.mu * (theta - self.anchor)


@dataclass(frozen=True, eq=False)
class Linear(Term):
    r"""$\langle c, \theta\rangle$: adds a constant to every gradient, as SCAFFOLD's control variates do."""

    slope: Tensor

    def gradient(self, theta: Tensor) -> Tensor:
        """The constant c."""
        return self.slope


def stack_terms(terms: Sequence[Term]) -> Term:
    """One term for a stack of clients, from one term per client; all have the same kind."""
    first = terms[0]
    return replace(first, **{name: torch.stack([each.tensors[name] for each in terms]) for name in first.tensors})
