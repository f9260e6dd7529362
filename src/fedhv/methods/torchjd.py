"""Methods that are rules of TorchJD; `torchjd_classes` makes a class of each rule. Needs the extra `torchjd`.

| kind of rule                  | input                                           | communication |
|-------------------------------|-------------------------------------------------|---------------|
| aggregator ("UPGrad")         | the mean task updates, as FSMGDA                | FSMGDA's      |
| weighting ("UPGradWeighting") | a Gram matrix of task gradients, as FedCMOO     | FedCMOO's     |
| scalarizer ("STCH")           | the reported losses                             | FedHV's       |

The numbers of a rule's constructor are hyper-parameters of the method; its vector of preferences or weights is the
field `preferences`. If an aggregator and a scalarizer have the same name, it means the aggregator. Rules that keep a
state between calls are not available, because a checkpoint could not contain it. TorchJD is described in P. Quinton
and V. Rey, Jacobian Descent for Multi-Objective Optimization, 2024.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State
from fedhv.methods.fedcmoo import FedCMOO
from fedhv.methods.parts.absent import absent_tasks
from fedhv.methods.preferences import check_number, checked_preferences, shares
from fedhv.methods.rules.base import SMALLEST, LossRule, RuleMemory
from fedhv.problem.parameters import Layout
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.requests import GramTermReplies, TaskUpdates
from fedhv.support.errors import FedHVError, InputError, diverged


class TorchJDRule:
    """A method that is a rule of TorchJD; its fields are the rule's hyper-parameters."""

    rule: ClassVar[type]
    options: ClassVar[tuple[str, ...]]
    """The names of its constructor's numbers, which are fields of the method."""
    vector: ClassVar[str | None]
    """The name of its constructor's vector of preferences."""
    needs_vector: ClassVar[bool]

    def make(self, present: Tensor) -> Any:
        """The rule with its hyper-parameters, for the tasks whose numbers are in `present`."""
        arguments = {name: getattr(self, name) for name in self.options}
        p = getattr(self, "preferences", None)
        if self.vector is not None and (p is not None or self.needs_vector):
            arguments[self.vector] = shares(None if p is None else [p[i] for i in present.tolist()], len(present))
        return self.rule(**arguments)

    def try_on(self, stat: Tensor) -> None:
        """Reject hyper-parameters that the rule rejects in its constructor or at its first use."""
        try:
            with torch.random.fork_rng(devices=[]):
                self.make(torch.arange(len(stat)))(stat)
        except (ImportError, TypeError, ValueError) as error:
            name = getattr(self, "label", self.rule.__name__)
            raise InputError(f"Method '{name}' could not be made: {' '.join(str(error).split())}") from None


@dataclass(frozen=True, kw_only=True)
class OnMatrix(TorchJDRule, Method):
    """A rule on a matrix with a row for every task; it may take preferences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if hasattr(self, "preferences"):
            object.__setattr__(self, "preferences", checked_preferences(self.label, self.preferences))

    def check(self, tasks: int) -> None:
        """Reject hyper-parameters that do not fit this number of tasks."""
        check_number(self.label, getattr(self, "preferences", None), tasks)
        self.try_on(torch.eye(tasks, dtype=torch.float64))


@dataclass(frozen=True, kw_only=True)
class OnUpdates(OnMatrix):
    """An aggregator on the mean task updates: m local trajectories and m uploads, as FSMGDA.

    The aggregator receives the mean task gradients along the local trajectories, J = −U/(η_ℓ K), with the round's η_ℓ
    and K = `training.local_steps`. If it combines the rows by weights, the heads move by the same weights; otherwise a
    head moves by 1/m. The length of the result is TorchJD's: that of a sum for some rules and of a mean for others.
    Choose `server_lr` accordingly.
    """

    rates_of: ClassVar[str] = "fsmgda"

    def round(self, state: State) -> Conversation:
        """One round: a step along the aggregate of the task updates."""
        replies = yield TaskUpdates(state.model)
        U, layout, local = replies.mean_updates, replies.layout, replies.cohort.local
        length = local.learning_rate * local.steps  # the round's rate: a schedule may have changed the method's
        # A task that no client of the cohort has is not a row of J, and has weight 0 in this round.
        present = replies.present.nonzero().flatten()
        J = layout.shared(U).double()[present.to(U.device)] / -length
        if not bool(J.isfinite().all()):
            raise diverged("The clients' task updates are")
        rule, w = self.make(present), torch.zeros(len(U))
        with _seeded(replies.cohort):
            if hasattr(rule, "gramian_weighting"):  # the product is computed on the device of the updates
                w[present] = rule.gramian_weighting((J @ J.T).cpu()).float()
                step = w.to(U) @ U
            elif _weighs(rule):
                w[present] = rule.weighting(J.cpu()).float()
                step = w.to(U) @ U
            else:
                w[present] = 1 / len(present)
                step = _with_shared(w.to(U) @ U, -length * rule(J.cpu()), layout)
        return State(
            model=state.model + self.server_lr * step, weights=w, record={"weights": w, **absent_tasks(replies)}
        )


@dataclass(frozen=True, kw_only=True)
class OnGram(OnMatrix, FedCMOO):
    """A weighting on the Gram matrix of task gradients that FedCMOO estimates, with FedCMOO's exchanges.

    The matrix is scaled to a mean diagonal of one and made positive semidefinite. Negative weights become zero, and the
    weights are scaled to sum to one.

    Attributes:
        extra_upload: The size of the compressed gradients in units of the shared parameters.
    """

    rates_of: ClassVar[str] = "fedcmoo"

    iterations: int = field(default=1, init=False)
    step_size: float = field(default=1.0, init=False)

    def _weights(self, gram: np.ndarray, terms: GramTermReplies, before: np.ndarray) -> np.ndarray:
        """FedCMOO leaves out tasks that no client of the cohort has; the preferences leave them out as well."""
        p, method = getattr(self, "preferences", None), self
        if p is not None and terms.shares is not None:
            there = [value for value, here in zip(p, terms.present.tolist(), strict=True) if here]
            changes: dict[str, Any] = {"preferences": tuple(there)}
            method = dataclasses.replace(self, **changes)
        return FedCMOO._weights(method, gram, terms, before)

    def descend_weights(self, gram: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The rule's weights instead of FedCMOO's projected descent; the previous weights if the rule gives none."""
        G = _semidefinite(gram)
        if G is None:
            return w
        with _named():
            found = np.maximum(self.make(torch.arange(len(w)))(torch.from_numpy(G)).numpy(), 0)
        return np.asarray(found / found.sum()) if 0 < found.sum() < np.inf else w


@dataclass(frozen=True, kw_only=True)
class OnReports(TorchJDRule, LossRule):
    """A scalarizer on the reported losses: its gradient, divided by the sum of its absolute values.

    The weights are on the simplex if the gradient has no negative entry.
    """

    def check(self, tasks: int) -> None:
        """Reject hyper-parameters that do not fit this number of tasks."""
        super().check(tasks)
        self.try_on(torch.ones(tasks, dtype=torch.float64))

    def weigh(self, losses: Tensor, state: State) -> tuple[Tensor, RuleMemory]:
        """The gradient of the scalarizer."""
        f = losses.clamp(min=SMALLEST).requires_grad_()
        with torch.enable_grad(), _named():
            (w,) = torch.autograd.grad(self.make(torch.arange(len(f)))(f), f)
        size = w.abs().sum()
        return (w / size if 0 < size < float("inf") else self.shares(len(f))), {}


def _weighs(rule: Any) -> bool:
    """Whether an aggregator is a weighted sum of its rows."""
    from torchjd.aggregation import WeightedAggregator

    return isinstance(rule, WeightedAggregator)


@contextmanager
def _seeded(cohort: Cohort) -> Iterator[None]:
    """Seed torch from the run's stream of this round."""
    with _named(f" in round {cohort.round + 1}"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(cohort.torch_seed(Purpose.METHOD))
        yield


@contextmanager
def _named(where: str = "") -> Iterator[None]:
    """Turn a rule's exception into an error of the run, such as that of a rule that needs more tasks than there are."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise FedHVError(f"TorchJD failed{where}: {' '.join(str(error).split())}") from error


def _with_shared(vector: Tensor, shared: Tensor, layout: Layout) -> Tensor:
    """The vector with another shared part."""
    mine = layout.shared_entries
    result = vector.clone()
    result[mine.to(vector.device)] = shared.to(vector)
    return result


def _semidefinite(gram: np.ndarray) -> np.ndarray | None:
    """The nearest positive semidefinite matrix, with a mean diagonal of one; None for a zero diagonal."""
    if not np.isfinite(gram).all():
        return None
    values, vectors = np.linalg.eigh(gram / 2 + gram.T / 2)
    G = (vectors * np.maximum(values, 0)) @ vectors.T
    size = np.trace(G) / len(G)
    return np.asarray(G / size) if size > 0 else None
