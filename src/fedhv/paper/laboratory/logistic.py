r"""Federated logistic regression with constants that are exact or provable bounds.

All m tasks have the same inputs and parameters, and each has its own labels:
$\ell_i(\theta; x, y_i) = \log(1 + e^{-y_i\langle x, \theta\rangle})$ with
$y_i = \pm 1$. Tasks with different labels conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv.methods.weights import Vector
from fedhv.paper.laboratory.federation import AnalyticFederation
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import Task
from fedhv.protocol.cohort import ReportBudget
from fedhv.support.errors import InputError
from fedhv.theory._checks import array, positive, whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.reports import report_factor


@dataclass(frozen=True, eq=False)
class Logistic(AnalyticFederation):
    r"""m logistic tasks on N clients of n examples each, in d dimensions, started at $\theta^0 = 0$.

    Attributes:
        inputs: x, N × n × d.
        labels: $y_i = \pm 1$, N × n × m.
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        self._in_single_precision("inputs", "labels")
        if self.inputs.ndim != 3 or self.labels.ndim != 3 or self.inputs.shape[:2] != self.labels.shape[:2]:
            raise InputError(
                "Parameters `inputs` and `labels` should have shapes (clients, examples, dimensions) and (clients, "
                f"examples, tasks). Found shapes {self.inputs.shape} and {self.labels.shape}."
            )
        if not np.isin(self.labels, (-1, 1)).all():
            raise InputError("Parameter `labels` should be -1 or 1. Found other values.")

    @classmethod
    def random(
        cls,
        seed: int = 0,
        *,
        clients: int = 8,
        examples: int = 6,
        tasks: int = 2,
        dimensions: int = 3,
        spread: float = 0.3,
        size: float = 0.5,
    ) -> Logistic:
        """A random federation: every task has its own separating direction, every client its own mean input."""
        rng = np.random.default_rng(seed)
        directions = rng.standard_normal((dimensions, tasks))
        middles = spread * rng.standard_normal((clients, 1, dimensions))
        inputs = size * (middles + rng.standard_normal((clients, examples, dimensions)))
        noisy = inputs @ directions + 0.3 * rng.standard_normal((clients, examples, tasks))
        return cls(inputs, np.where(noisy > 0, 1.0, -1.0))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """N, n, m and d."""
        clients, examples, dimensions = self.inputs.shape
        return clients, examples, self.labels.shape[2], dimensions

    @property
    def start(self) -> np.ndarray:
        r"""$\theta^0 = 0$."""
        return np.zeros(self.dimensions)

    # --- the functions ------------------------------------------------------------------------------------

    def example_losses(self, theta: Vector) -> np.ndarray:
        r"""$\ell_i(\theta; x_{k,j})$, N × n × m."""
        return np.asarray(np.logaddexp(0, -self.labels * (self.inputs @ array(theta))[..., None]))

    def example_gradients(self, theta: Vector) -> np.ndarray:
        r"""$\nabla\ell_i(\theta; x_{k,j}) = -y_i\,x\,/(1 + e^{y_i\langle x,\theta\rangle})$, N × n × m × d."""
        z = self.labels * (self.inputs @ array(theta))[..., None]
        return np.asarray((-self.labels / (1 + np.exp(z)))[..., None] * self.inputs[:, :, None])

    def losses(self, theta: Vector) -> np.ndarray:
        r"""$F(\theta)$."""
        return np.asarray(self.example_losses(theta).mean(axis=(0, 1)))

    def gradients(self, theta: Vector) -> np.ndarray:
        r"""$\nabla f_i(\theta)$, m × d."""
        return np.asarray(self.example_gradients(theta).mean(axis=(0, 1)))

    # --- constants ----------------------------------------------------------------------------------------

    @property
    def smoothness(self) -> float:
        r"""$L_i = \max_k \frac14\lambda_{\max}(X_k^\top X_k/n)$ for every task: exact, attained at $\theta = 0$."""
        gram = np.einsum("kjd,kje->kde", self.inputs, self.inputs) / self.examples
        return float(np.linalg.eigvalsh(gram)[:, -1].max()) / 4

    @property
    def gradient_bound(self) -> float:
        r"""$\sup\|\nabla\ell_i\| = \max_j\|x_j\|$, everywhere: exact as a supremum."""
        return float(np.linalg.norm(self.inputs, axis=-1).max())

    def radius(self, steps: StepSizes, horizon: int) -> float:
        """An upper bound on the distance of every local or global model from the start within the horizon."""
        each = self.gradient_bound * steps.local
        return whole("horizon", horizon) * steps.server_lr * each + each

    def constants(
        self,
        *,
        cohort: int,
        batch_size: int,
        radius: float,
        margin: float,
        report: ReportBudget = "all",
        floor: float | None = None,
    ) -> ProblemConstants:
        r"""The constants on the ball of this radius around the start.

        $L_i$ is exact. $\sigma_i$, $\zeta_i$, $\omega_i$ and $\tau_i$ are provable upper bounds: their exact values
        at the start, plus the radius times a Lipschitz constant of the losses or gradients whose spread they are.
        The reference is the smallest one that such a bound on the losses proves safe.

        Args:
            cohort: M.
            batch_size: b, drawn with replacement for every local step.
            radius: The radius of the ball; the ball of `radius(steps, horizon)` contains every trajectory.
            margin: ρ.
            report: $B_{\rm rep}$.
            floor: $\rho_{\rm clip}$; the margin by default.
        """
        far, b = positive("radius", radius), whole("batch_size", batch_size)
        norms = np.linalg.norm(self.inputs, axis=-1)  # an example's loss is ‖x‖-Lipschitz, its gradient ‖x‖²/4
        gradients, values = self.example_gradients(self.start), self.example_losses(self.start)
        client_gradients, client_values = gradients.mean(axis=1), values.mean(axis=1)
        noise = np.sqrt(((gradients - client_gradients[:, None]) ** 2).sum(axis=-1).mean(axis=1))  # N × m
        noise = noise + far * np.sqrt((norms**4).mean(axis=1))[:, None] / 4
        between = ((client_gradients - client_gradients.mean(axis=0)) ** 2).sum(axis=-1).mean(axis=0)
        spread = ((client_values - client_values.mean(axis=0)) ** 2).mean(axis=0)
        dispersion = ((values - client_values[:, None]) ** 2).mean(axis=(0, 1))
        gamma = report_factor(self.examples, self.report_size(report, b))
        reference = self.losses(self.start) + far * norms.mean() + positive("margin", margin)
        smoothness = np.full(self.tasks, self.smoothness)
        return ProblemConstants(
            smoothness=smoothness,
            reference=reference,
            initial_losses=self.losses(self.start),
            clients=self.clients,
            cohort=cohort,
            gradient_noise=noise.max(axis=0) / np.sqrt(b),
            heterogeneity=np.sqrt(between) + far * self.smoothness,
            loss_spread=np.sqrt(spread) + far * np.sqrt((norms.mean(axis=1) ** 2).mean()),
            report_noise=np.sqrt(gamma) * (np.sqrt(dispersion) + far * np.sqrt((norms**2).mean())),
            margin=margin,
            floor=floor,
            gradient_bound=max(self.gradient_bound, float(np.sqrt(2 * smoothness * reference).max())),
        )

    # --- for engines --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """The federation as a problem, for all methods and engines."""
        clients = [
            (self.inputs[k].astype(np.float32), [self.labels[k, :, i].astype(np.float32) for i in range(self.tasks)])
            for k in range(self.clients)
        ]
        tasks = [_task(f"logistic {i + 1}") for i in range(self.tasks)]
        return Problem.from_clients(
            lambda: SharedLogit(self.dimensions, self.tasks), tasks, clients, test=clients[0], name="logistic"
        )


class SharedLogit(nn.Module):
    r"""$\langle x, \theta\rangle$, the same for every task, from $\theta = 0$."""

    def __init__(self, dimensions: int, tasks: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(dimensions))
        self.tasks = tasks

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """One logit per example, the same for every task."""
        return [inputs @ self.theta] * self.tasks


def _task(name: str) -> Task:
    return Task(
        name,
        loss=lambda outputs, targets: F.softplus(-targets * outputs),
        score=lambda outputs, targets: (targets * outputs > 0).float(),
    )
