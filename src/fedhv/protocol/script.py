"""Scripts: the work of a client for a request, as a generator of computations.

A script yields computations and receives their results, as a method yields requests and receives replies. It is written
for one client. An engine runs the scripts of a cohort one after the other, or advances them in step and computes their
pending computations together. For a list of computations it sends a list of results.
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
"""Yields a `Computation` or a list of them, receives the results, returns the client's `Reply`."""

GRADIENT_PART = 1_000_000
"""The parts of single gradients start here, so that they share no random stream with task-wise training."""

LAYERS = "norm"
"""The layers that stay with a client, in its memory; tasks that train alone (`part`) have layers of their own each."""


@dataclass
class Memory:
    """The tensors that one client keeps: `round` until the round ends, `run` until the run ends (in checkpoints)."""

    round: dict[str, Tensor] = field(default_factory=dict)
    run: dict[str, Tensor] = field(default_factory=dict)

    def versions(self) -> list[tuple[str, int, int]]:
        """Its tensors and their versions, to see whether a script changed any: it may replace one, or write into it."""
        kept = [*self.round.items(), *self.run.items()]
        return [(name, id(value), getattr(value, "_version", 0)) for name, value in kept]


@dataclass(frozen=True)
class Member:
    """A client of a cohort, for the script of a request.

    Attributes:
        client: k.
        cohort: The cohort, with the round, the seed and the local training.
        layout: The layout of the model.
        holding: The numbers of its examples and labels.
        memory: The tensors that it keeps between exchanges and rounds.
        labels: A function of positions: the number of labelled examples among them, for every task.
    """

    client: int
    cohort: Cohort
    layout: Layout
    holding: Holding
    memory: Memory = field(default_factory=Memory)
    labels: Callable[[np.ndarray], tuple[int, ...]] | None = None

    @property
    def examples(self) -> int:
        """n_k, the number of its examples."""
        return self.holding.examples

    @property
    def local(self) -> LocalTraining:
        """Its local training."""
        return self.cohort.local

    def recall(self, name: str, what: str) -> Tensor:
        """A tensor that it stored earlier in this round; `what` is its name in the error if there is none."""
        if name not in self.memory.round:
            raise FedHVError(
                f"Client {self.client} does not have the {what} of round {self.cohort.round + 1}: it has not received "
                "that request, or it was restarted."
            )
        return self.memory.round[name]

    def stream(self, purpose: Purpose, part: int = 0) -> np.random.Generator:
        """Its random stream for one purpose in this round."""
        return self.cohort.stream(purpose, self.client, part)

    def scaled(self, weights: Tensor) -> Tensor:
        """Task weights that keep gradients unbiased if labels are missing in minibatches."""
        scales = self.holding.scales
        return weights if scales is None else weights * scales.to(weights)

    def report(self, losses: Tensor, positions: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """The mean losses over labelled examples, from those over all examples, and the labels of every task."""
        if not self.layout.partial:
            return losses, None
        found = self.holding.of(self.layout.tasks) if self.labels is None else self.labels(positions)
        counts = torch.tensor(found, dtype=torch.float32, device=losses.device)
        return losses * len(positions) / counts.clamp(min=1), counts

    def optimiser_state(self, part: int) -> tuple[Tensor, ...]:
        """The stored state of its optimiser, if it is kept between rounds; empty otherwise."""
        kept = self.memory.run if self.local.keep_state else {}
        names = sorted(name for name in kept if name.startswith(f"optimiser.{part}."))
        return tuple(kept[name] for name in names)

    def keep_optimiser_state(self, part: int, state: Sequence[Tensor]) -> None:
        """Store the state for the next round, if `keep_state` is set."""
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
        if budget == "all":
            return np.arange(self.examples)
        return report_positions(self.stream(Purpose.REPORT), self.examples, self.local, budget)


class Worker(ABC):
    """Computes for one client; `protocol.client.Client` implements it."""

    @abstractmethod
    def losses(self, theta: Tensor, positions: np.ndarray, k: int) -> Tensor:
        """The m mean losses of client k at θ, in evaluation mode, on these of its examples."""

    @abstractmethod
    def assess(self, theta: Tensor, k: int) -> Tensor:
        """Summed losses, summed scores and labels of the examples that client k holds out, 3 × m."""

    @abstractmethod
    def judge(self, theta: Tensor, k: int) -> Tensor:
        """Every task's main metric on the examples that client k holds out, and the labels behind it, 2 × m."""

    @abstractmethod
    def descend(self, work: Descend, me: Member) -> Tensor:
        """Δθ_k after local training."""

    @abstractmethod
    def gradient_of(self, work: Gradient, me: Member) -> Tensor:
        """The gradient of the weighted loss on one minibatch."""


class Computation(ABC):
    """One computation of a script. Engines compute those of the package for a whole cohort, others client by client."""

    @abstractmethod
    def alone(self, worker: Worker, me: Member) -> Any:
        """Its result for one client."""


@dataclass(frozen=True, eq=False)
class Losses(Computation):
    """The m mean losses at a model, in evaluation mode, on clean examples; missing labels count as zeros.

    Attributes:
        at: θ.
        on: The positions in the client's list of examples.
    """

    at: Tensor
    on: np.ndarray

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """F̂_k."""
        return worker.losses(me.own(self.at), self.on, me.client)


@dataclass(frozen=True, eq=False)
class HeldOut(Computation):
    """Every task's summed loss, summed score and labels at a model on the examples that the client holds out, 3 × m."""

    at: Tensor

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """The three sums."""
        return worker.assess(self.at, me.client)


@dataclass(frozen=True, eq=False)
class Judged(Computation):
    """Every task's main metric at a model on the examples that the client holds out, and the labels behind it, 2 × m.

    Both are 0 where the task has no metric, or the examples do not define it.
    """

    at: Tensor

    def alone(self, worker: Worker, me: Member) -> Tensor:
        """The metrics and the numbers of labels."""
        return worker.judge(self.at, me.client)


@dataclass(frozen=True, eq=False)
class Descend(Computation):
    """K local steps on Σ wᵢℓᵢ plus additional terms, from a model; the result is the update Δθ_k.

    Attributes:
        start: θ.
        weights: w, fixed in all steps.
        part: The part of the client's random streams; tasks that are trained alone have one each.
        first: The gradient of the first step, if it is known.
        terms: Additional terms of the local objective.
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
    """∇ Σ wᵢℓᵢ at a model on one minibatch of the client; each `part` has its own minibatch."""

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
    """Run one client's script to its end; returns its reply."""
    try:
        wanted = next(script)
        while True:
            result = [compute(each) for each in wanted] if isinstance(wanted, list) else compute(wanted)
            wanted = script.send(result)
    except StopIteration as end:
        return end.value
