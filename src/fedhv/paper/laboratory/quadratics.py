r"""Federated quadratics on which every assumption of the theory holds and every constant is exact.

Example j of client k costs task i $\ell_i(\theta; x_{k,j}) = \frac{L_i}{2}\|\theta - a_{kj,i}\|^2 + h_{kj,i}$. The
offsets $h \ge 0$ change losses but not gradients, so the noise of reports and that of gradients are set independently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.methods import FedHV
from fedhv.methods.weights import Vector
from fedhv.paper.laboratory.federation import AnalyticFederation
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import Task
from fedhv.protocol.cohort import ReportBudget
from fedhv.support.errors import InputError
from fedhv.theory._checks import array, positive_vector, whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.reports import report_factor


@dataclass(frozen=True, eq=False)
class Quadratics(AnalyticFederation):
    r"""m quadratic tasks on N clients of n examples each, in d dimensions.

    A local step is $\theta \leftarrow (1 - \eta_\ell h)\theta + \eta_\ell\sum_i w_iL_i\,a_i$ with $h = \sum_i w_iL_i$:
    a convex combination of the model and examples. So for $\eta_\ell \max_i L_i \le 1$ and $\eta_g \le 1$ every
    model, local or global, surely stays in the convex hull of the start and the points. The losses, their
    spread between clients and the dispersion of examples are convex functions of θ. So their suprema over that
    hull are maxima over its finitely many vertices: exact, and valid on every trajectory.

    Attributes:
        smoothness: $L_i$, m numbers.
        points: $a_{kj,i}$, N × n × m × d.
        offsets: $h_{kj,i} \ge 0$, N × n × m.
        start: $\theta^0$, d numbers.
    """

    smoothness: np.ndarray
    points: np.ndarray
    offsets: np.ndarray
    start: np.ndarray

    def __post_init__(self) -> None:
        self._in_single_precision("smoothness", "points", "offsets", "start")
        positive_vector("smoothness", self.smoothness)
        if self.points.ndim != 4 or self.points.size == 0 or self.points.shape[2] != self.smoothness.size:
            raise InputError(
                "Parameter `points` should have shape (clients, examples, tasks, dimensions) with "
                f"{self.smoothness.size} tasks. Found shape {self.points.shape}."
            )
        if self.offsets.shape != self.points.shape[:3] or not (self.offsets >= 0).all():
            raise InputError(
                f"Parameter `offsets` should be nonnegative and of shape {self.points.shape[:3]}, so that no loss "
                f"is negative. Found shape {self.offsets.shape} and smallest value {self.offsets.min(initial=np.inf)}."
            )
        if self.start.shape != (self.dimensions,):
            raise InputError(
                f"Parameter `start` should hold {self.dimensions} numbers. Found shape {self.start.shape}."
            )

    @classmethod
    def random(
        cls,
        seed: int = 0,
        *,
        clients: int = 8,
        examples: int = 6,
        tasks: int = 2,
        dimensions: int = 3,
        size: float = 0.3,
        spread: float = 0.1,
        noise: float = 0.1,
        offset: float = 0.0,
        distance: float = 1.0,
    ) -> Quadratics:
        """A federation drawn at random.

        Args:
            seed: The seed of all draws.
            clients: N.
            examples: n, the number of examples of each client.
            tasks: m.
            dimensions: d.
            size: The scale of the distances between the tasks' optima.
            spread: The scale of the distances of the clients' optima from the task's.
            noise: The scale of the distances of the examples from their client's optimum.
            offset: The largest offset of an example.
            distance: The distance of the start from the mean of the tasks' optima.
        """
        rng = np.random.default_rng(seed)
        middle = size * rng.standard_normal((1, 1, tasks, dimensions))
        around = spread * rng.standard_normal((clients, 1, tasks, dimensions))
        within = noise * rng.standard_normal((clients, examples, tasks, dimensions))
        away = rng.standard_normal(dimensions)
        return cls(
            smoothness=rng.uniform(0.7, 1.3, tasks),
            points=middle + around + within,
            offsets=offset * rng.random((clients, examples, tasks)),
            start=middle.mean(axis=(0, 1, 2)) + distance * away / np.linalg.norm(away),
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """N, n, m and d."""
        clients, examples, tasks, dimensions = self.points.shape
        return clients, examples, tasks, dimensions

    # --- the functions, for one θ or an array of them -----------------------------------------------------

    def example_losses(self, theta: Vector) -> np.ndarray:
        r"""$\ell_i(\theta; x_{k,j})$, of shape (…, N, n, m)."""
        away = array(theta)[..., None, None, None, :] - self.points
        return np.asarray(self.smoothness / 2 * (away**2).sum(axis=-1) + self.offsets)

    def client_losses(self, theta: Vector) -> np.ndarray:
        r"""$f_i^{(k)}(\theta)$, of shape (…, N, m)."""
        return np.asarray(self.example_losses(theta).mean(axis=-2))

    def losses(self, theta: Vector) -> np.ndarray:
        r"""$F(\theta)$, of shape (…, m)."""
        away = array(theta)[..., None, :] - self.centres
        return np.asarray(self.smoothness / 2 * (away**2).sum(axis=-1) + self.least)

    def gradients(self, theta: Vector) -> np.ndarray:
        r"""$\nabla f_i(\theta)$, of shape (…, m, d)."""
        return np.asarray(self.smoothness[:, None] * (array(theta)[..., None, :] - self.centres))

    @cached_property
    def centres(self) -> np.ndarray:
        """The optimum of each task, m × d."""
        return np.asarray(self.points.mean(axis=(0, 1)))

    @cached_property
    def least(self) -> np.ndarray:
        """The tasks' smallest losses, m numbers."""
        spread = ((self.points - self.centres) ** 2).sum(axis=-1)
        return np.asarray((self.smoothness / 2 * spread + self.offsets).mean(axis=(0, 1)))

    # --- constants ----------------------------------------------------------------------------------------

    @cached_property
    def vertices(self) -> np.ndarray:
        """Points whose convex hull contains every trajectory: the start and all examples."""
        return np.concatenate([self.start[None], self.points.reshape(-1, self.dimensions)])

    def reference(self, margin: float) -> np.ndarray:
        r"""$r_i = \sup f_i + \rho$ over the hull: the smallest reference that is surely safe with this margin."""
        r = self.losses(self.vertices).max(axis=0) + margin
        return np.asarray(r * (1 + 4 * np.finfo(np.float64).eps))  # rounding must not reduce the margin

    def check_steps(self, steps: StepSizes) -> None:
        """Raise an error for steps with which a model might leave the hull."""
        if steps.server_lr > 1:
            raise InputError(
                "Parameter `server_lr` should be at most 1, for models to stay among the examples. "
                f"Found `server_lr = {steps.server_lr}`."
            )
        if steps.local_lr * self.smoothness.max() > 1:
            raise InputError(
                f"Parameter `local_lr` should be at most 1/max L = {1 / self.smoothness.max()}, for models to stay "
                f"among the examples. Found `local_lr = {steps.local_lr}`."
            )

    def constants(
        self,
        *,
        cohort: int,
        batch_size: int,
        report: ReportBudget = "all",
        margin: float | None = None,
        floor: float | None = None,
        reference: Vector | None = None,
    ) -> ProblemConstants:
        r"""The exact constants.

        $\sigma_i$ and $\zeta_i$ do not depend on θ; $\omega_i$, $\tau_i$ and $G_{\rm sg}$ are attained on the hull. The
        paper requires $G_{\rm sg} \ge G_{\max}$, which determines it if examples are close together.

        Args:
            cohort: M.
            batch_size: b, drawn with replacement for every local step.
            report: $B_{\rm rep}$.
            margin: ρ, the margin of the safe reference. Without `reference`, the reference is computed from it.
            floor: $\rho_{\rm clip}$; the margin by default.
            reference: A given reference. A margin given with it must hold on the whole hull. Without a margin the
                reference may be unsafe; then the certificate of Theorem A.15 decides.
        """
        if reference is None:
            if margin is None:
                raise InputError("Either `margin` or `reference` should be given. Found neither.")
            r = self.reference(margin)
        else:
            r = positive_vector("reference", reference, size=self.tasks)
            surely = float((r - self.reference(0.0)).min())
            if margin is not None and margin > surely:
                raise InputError(
                    f"Parameter `margin` should be at most {surely}, which this reference leaves on every trajectory. "
                    f"Found `margin = {margin}`."
                )
        b = whole("batch_size", batch_size)
        away = self.points - self.points.mean(axis=1, keepdims=True)
        variance = self.smoothness**2 * (away**2).sum(axis=-1).mean(axis=1)  # of one example's gradient, N × m
        between = self.points.mean(axis=1) - self.centres
        at_vertices = self.example_losses(self.vertices)  # V × N × n × m
        client = at_vertices.mean(axis=2)
        spread = ((client - client.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)
        dispersion = ((at_vertices - client[:, :, None]) ** 2).mean(axis=2).mean(axis=1)
        gamma = report_factor(self.examples, self.report_size(report, b))
        farthest = np.array(
            [
                max(
                    np.linalg.norm(self.vertices - a, axis=1).max()
                    for a in self.points[:, :, i].reshape(-1, self.dimensions)
                )
                for i in range(self.tasks)
            ]
        )
        largest = float((self.smoothness * farthest).max())
        return ProblemConstants(
            smoothness=self.smoothness,
            reference=r,
            initial_losses=self.losses(self.start),
            clients=self.clients,
            cohort=cohort,
            gradient_noise=np.sqrt(variance.max(axis=0) / b),
            heterogeneity=self.smoothness * np.sqrt((between**2).sum(axis=-1).mean(axis=0)),
            loss_spread=np.sqrt(spread.max(axis=0)),
            report_noise=np.sqrt(gamma * dispersion.max(axis=0)),
            margin=margin,
            floor=floor,
            gradient_bound=max(largest, float(np.sqrt(2 * self.smoothness * r).max())),
        )

    # --- for engines --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """The federation as a problem, for all methods and engines."""
        clients = [
            (
                np.zeros((self.examples, 1), np.float32),
                [
                    np.concatenate([self.points[k, :, i], self.offsets[k, :, i, None]], axis=1).astype(np.float32)
                    for i in range(self.tasks)
                ],
            )
            for k in range(self.clients)
        ]
        tasks = [_task(f"quadratic {i + 1}", float(smooth)) for i, smooth in enumerate(self.smoothness)]
        start = torch.from_numpy(self.start).float()
        return Problem.from_clients(
            lambda: Point(start, self.tasks), tasks, clients, test=clients[0], name="quadratics"
        )

    def method(self, constants: ProblemConstants, steps: StepSizes, report: ReportBudget = "all") -> FedHV:
        """FedHV with these constants and steps."""
        self.check_steps(steps)
        return super().method(constants, steps, report)


class Point(nn.Module):
    """A model whose outputs are its parameters: every output is θ, for any input."""

    def __init__(self, start: Tensor, tasks: int) -> None:
        super().__init__()
        self.point = nn.Parameter(start.clone())
        self.tasks = tasks

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """θ for every example and task."""
        return [self.point.expand(len(inputs), -1)] * self.tasks


def _task(name: str, smoothness: float) -> Task:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return smoothness / 2 * (outputs - targets[:, :-1]).square().sum(dim=1) + targets[:, -1]

    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        return (-loss(outputs, targets)).exp()

    def check(targets: Any) -> None:
        if not bool((targets[:, -1] >= 0).all()):
            raise InputError(f"Task '{name}' expects nonnegative offsets in its last column. Found negative ones.")

    return Task(name, loss, score, check)
