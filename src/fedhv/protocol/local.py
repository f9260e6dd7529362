"""How a client trains: the update rule of its steps, and the terms of its objective beside the tasks' losses.

Both are pure functions of tensors, so that they work for one parameter vector and for a stack of them, one row for
every client, and so that any engine can compute them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""What an update rule carries from step to step."""


class UpdateRule(ABC):
    """θ ← θ − η_ℓ(…): one local step. Subclasses are frozen dataclasses; their fields are hyper-parameters."""

    def start(self, theta: Tensor) -> State:
        """The state before the first step."""
        return ()

    @abstractmethod
    def step(self, theta: Tensor, gradient: Tensor, state: State, rate: float | Tensor) -> tuple[Tensor, State]:
        """θ and the state after a step; the rate is a number, or for a stack a column of them."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    r"""$v \leftarrow \mu v + g$, $\theta \leftarrow \theta - \eta_\ell v$."""

    momentum: float = 0.0

    def step(self, theta: Tensor, gradient: Tensor, state: State, rate: float | Tensor) -> tuple[Tensor, State]:
        """One step of SGD with momentum."""
        velocity = gradient
        if state and self.momentum != 0:
            (before,) = state
            # A stack is large: as few passes over it as possible.
            one_pass = isinstance(rate, Tensor)
            velocity = (
                torch.add(gradient, before, alpha=self.momentum) if one_pass else self.momentum * before + gradient
            )
        moved = (
            torch.addcmul(theta, rate, velocity, value=-1)
            if isinstance(rate, Tensor)
            else torch.sub(theta, velocity, alpha=rate)
        )
        return moved, (velocity,)


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A term of the local objective beside the tasks' losses, by its gradient.

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
        """What terms must have in common to be stacked: their class and their numbers."""
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
    """One term for a stack of clients from theirs, which are of one kind."""
    first = terms[0]
    return replace(first, **{name: torch.stack([each.tensors[name] for each in terms]) for name in first.tensors})


def descend(
    theta: Tensor,
    gradients: Iterable[Callable[[Tensor], Tensor]],
    rate: float | Tensor,
    rule: UpdateRule,
    terms: Sequence[Term] = (),
) -> Tensor:
    """Local steps from θ, one for every gradient; `theta` may be one vector, or a stack with one row per client."""
    state = rule.start(theta)
    for gradient in gradients:
        g = gradient(theta)
        for term in terms:
            g = g + term.gradient(theta)
        theta, state = rule.step(theta, g, state, rate)
    return theta
