"""What a client does for a request, as a short script over a few computations.

A script yields computations and is sent their results, as a method yields requests. It is written for one client; an
engine computes one client's after the other, or advances the scripts of a cohort in step and computes what all of them
wait for at once. A list of computations is answered by the list of their results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import Cohort, ReportBudget, report_positions
from fedhv.protocol.compression import Compressed, compress
from fedhv.protocol.local import LocalTraining, Term
from fedhv.support.errors import FedHVError

Script = Generator[Any, Any, Any]
"""Yields a `Computation` or a list of them, is sent the results, returns the client's `Reply`."""

GRADIENT_PART = 1_000_000
"""Parts from here on are single gradients, so that they share no random stream with task-wise training."""

LAYERS = "norm"
"""The layers that stay with a client, in its memory; tasks that train alone (`part`) have layers of their own each."""


@dataclass
class Memory:
    """What one client keeps: `round` until the round ends, `run` until the run ends (it is saved in checkpoints)."""

    round: dict[str, Tensor] = field(default_factory=dict)
    run: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A client of a cohort, as a request's script sees it.

    Attributes:
        client: k.
        cohort: Fixes the round, the seed and how clients train.
        layout: Of the model.
        holding: How many examples and labels it holds.
        memory: What it keeps between exchanges and rounds.
        labels: How many of its examples at these positions are labelled, for every task.
    """

    client: int
    cohort: Cohort
    layout: Layout
    holding: Holding
    memory: Memory = field(default_factory=Memory)
    labels: Callable[[np.ndarray], tuple[int, ...]] | None = None

    @property
    def examples(self) -> int:
        """n_k, how many examples it holds."""
        return self.holding.examples

    @property
    def local(self) -> LocalTraining:
        """How it trains."""
        return self.cohort.local

    def recall(self, name: str, what: str) -> Tensor:
        """A tensor that it kept earlier in this round; `what` is its name in the error where it has none."""
        if name not in self.memory.round:
            raise FedHVError(
                f"Client {self.client} no longer has the {what} of round {self.cohort.round + 1}: it was not asked for "
                "them, or was started again since."
            )
        return self.memory.round[name]

    def stream(self, purpose: Purpose, part: int = 0) -> np.random.Generator:
        """Its random stream for one purpose in this round."""
        return self.cohort.stream(purpose, self.client, part)

    def scaled(self, weights: Tensor) -> Tensor:
        """Task weights for sums over minibatches in which labels are missing, so that gradients are unbiased."""
        scales = self.holding.scales
        return weights if scales is None else weights * scales.to(weights)

    def report(self, losses: Tensor, positions: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """The mean losses over labelled examples from those over all, and how many labels there are of every task."""
        if not self.layout.partial:
            return losses, None
        found = self.holding.of(self.layout.tasks) if self.labels is None else self.labels(positions)
        counts = torch.tensor(found, dtype=torch.float32, device=losses.device)
        return losses * len(positions) / counts.clamp(min=1), counts

    def optimiser_state(self, part: int) -> tuple[Tensor, ...]:
        """Where its optimiser stands, where that is kept from round to round; empty for a fresh start."""
        kept = self.memory.run if self.local.keep_state else {}
        names = sorted(name for name in kept if name.startswith(f"optimiser.{part}."))
        return tuple(kept[name] for name in names)

    def keep_optimiser_state(self, part: int, state: Sequence[Tensor]) -> None:
        """Keep it for the next round, where that is asked for."""
        if self.local.keep_state:
            self.memory.run.update({f"optimiser.{part}.{i}": value for i, value in enumerate(state)})

    def own(self, theta: Tensor, part: int = 0) -> Tensor:
        """θ with the layers that the client keeps in their place; the received ones before it has trained."""
        kept = self.memory.run.get(f"{LAYERS}.{part}") if self.layout.resident else None
        if kept is None:
            return theta
        mine = self.layout.resident_entries.to(theta.device)
        return theta.masked_scatter(mine, kept.to(theta))

    def keep_layers(self, part: int, theta: Tensor) -> None:
        """Keep the layers that do not travel until it trains again."""
        if self.layout.resident:
            self.memory.run[f"{LAYERS}.{part}"] = theta[self.layout.resident_entries.to(theta.device)]

    def report_examples(self, budget: ReportBudget) -> np.ndarray:
        """The positions of the examples that a report with this budget B_rep uses."""
        return report_positions(self.stream(Purpose.REPORT), self.examples, self.local, budget)


class Worker(ABC):
    """Who computes for one client; `protocol.client.Client` does."""

    @abstractmethod
    def losses(self, theta: Tensor, positions: np.ndarray, k: int) -> Tensor:
        """The m mean losses of client k at θ, in evaluation mode, on these of its examples."""

    @abstractmethod
    def descend(self, work: Descend, me: Member) -> Tensor:
        """Δθ_k after local training."""

    @abstractmethod
    def gradient_of(self, work: Gradient, me: Member) -> Tensor:
        """The gradient of the weighted loss on one minibatch."""


class Computation(ABC):
    """One step of a script. Engines compute the package's own for a whole cohort at once; others client by client."""

    @abstractmethod
    def alone(self, worker: Worker, me: Member) -> Any:
        """Its result for one client."""


@dataclass(frozen=True, eq=False)
class Losses(Computation):
    """The m mean losses at a model, in evaluation mode, on clean examples; missing labels count as zeros.

    Attributes:
        at: θ.
        on: Positions in the client's list of examples.
    """

    at: Tensor
    on: np.ndarray

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """F̂_k."""
        return worker.losses(me.own(self.at), self.on, me.client)


@dataclass(frozen=True, eq=False)
class Descend(Computation):
    """K local steps on Σ wᵢℓᵢ plus other terms, from a model; the result is the update Δθ_k.

    Attributes:
        start: θ.
        weights: w, held fixed; None means 1/m each.
        part: Which part of the client's random streams; the tasks that train alone have one each.
        first: The gradient of the first step, where it is known already.
        terms: Of the local objective beside the tasks' losses.
    """

    start: Tensor
    weights: Tensor
    part: int = 0
    first: Tensor | None = None
    terms: tuple[Term, ...] = ()

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """Δθ_k."""
        return worker.descend(self, me)


@dataclass(frozen=True, eq=False)
class Gradient(Computation):
    """∇ Σ wᵢℓᵢ at a model on one minibatch of the client; each `part` has a minibatch of its own."""

    at: Tensor
    weights: Tensor
    part: int = 0

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """The gradient, one number for every parameter."""
        return worker.gradient_of(self, me)


@dataclass(frozen=True, eq=False)
class Compress(Computation):
    """The shared part of m task gradients (m × d), compressed to `extra_upload` × d scalars by a randomised SVD."""

    gradients: Tensor
    extra_upload: float

    def alone(self, worker: Worker, me: Member) -> Compressed:
        """The two factors."""
        return compress(me.layout.shared(self.gradients).T, self.extra_upload, me.stream(Purpose.COMPRESSION))


def play(script: Script, compute: Callable[[Computation], Any]) -> Any:
    """Play one client's script to its end; returns its reply."""
    try:
        wanted = next(script)
        while True:
            result = [compute(each) for each in wanted] if isinstance(wanted, list) else compute(wanted)
            wanted = script.send(result)
    except StopIteration as end:
        return end.value
