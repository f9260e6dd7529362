r"""The interface of the laboratory's federations: sizes, a start, losses and gradients in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedhv.methods import FedHV
from fedhv.methods.weights import Vector
from fedhv.problem.problem import Problem
from fedhv.protocol.cohort import ReportBudget
from fedhv.theory._checks import array
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.reports import report_size


class AnalyticFederation(ABC):
    """m tasks on N clients of n examples each, in d dimensions."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int, int]:
        """N, n, m and d."""

    @property
    def clients(self) -> int:
        """N."""
        return self.sizes[0]

    @property
    def examples(self) -> int:
        """n, the number of examples of each client."""
        return self.sizes[1]

    @property
    def tasks(self) -> int:
        """m."""
        return self.sizes[2]

    @property
    def dimensions(self) -> int:
        """d."""
        return self.sizes[3]

    @abstractmethod
    def losses(self, theta: Vector) -> np.ndarray:
        r"""$F(\theta)$, m numbers."""

    @abstractmethod
    def gradients(self, theta: Vector) -> np.ndarray:
        r"""$\nabla f_i(\theta)$, m × d."""

    def squared_gradient(self, theta: Vector, reference: Vector) -> np.ndarray:
        r"""$\|\nabla\Phi(\theta)\|^2$, one value per θ."""
        scale = 1 / (array(reference) - self.losses(theta))
        return np.asarray(((scale[..., None] * self.gradients(theta)).sum(axis=-2) ** 2).sum(axis=-1))

    def report_size(self, report: ReportBudget, batch_size: int) -> int:
        """Examples in a report."""
        return report_size(self.examples, 0 if report == "all" else report, batch_size)

    @abstractmethod
    def problem(self) -> Problem:
        """The federation as a problem, for all methods and engines."""

    def method(self, constants: ProblemConstants, steps: StepSizes, report: ReportBudget = "all") -> FedHV:
        """FedHV with these constants and steps."""
        return FedHV(
            server_lr=steps.server_lr,
            local_lr=steps.local_lr,
            reference=constants.reference,
            report=report,
            floor=floor_of(constants),
        )

    def _in_single_precision(self, *names: str) -> None:
        """Round these arrays to single precision, so that engines and formulas use the same numbers."""
        for name in names:
            object.__setattr__(self, name, array(getattr(self, name)).astype(np.float32).astype(np.float64))


def floor_of(constants: ProblemConstants) -> float:
    r"""$\rho_{\rm clip}$ of runs with these constants: the floor, else ρ, else the method's default."""
    given = constants.margin is not None or constants.floor is not None
    return constants.rho_clip if given else FedHV().floor
