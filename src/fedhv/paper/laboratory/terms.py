"""Terms: the terms of the theorem's bound compared with measured runs, over many settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedhv.paper.laboratory.ensemble import Ensemble
from fedhv.paper.laboratory.logistic import Logistic
from fedhv.paper.laboratory.observed import Observed, observe_engine, observe_ensemble
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.protocol.cohort import ReportBudget
from fedhv.support.errors import InputError
from fedhv.theory._checks import whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.convergence import BoundTerms, prescribed_steps, stationarity_bound

RADIUS = 0.5
"""The radius of the ball on which the constants of logistic regression hold. The horizons here stay inside."""


@dataclass(frozen=True)
class Case:
    """A federation and how FedHV runs on it, with the prescribed steps.

    Attributes:
        name: Its name in tables.
        federation: Its federation.
        cohort: M.
        batch_size: b.
        report: B_rep.
        local_steps: K.
        server_lr: η_g.
        margin: ρ.
    """

    name: str
    federation: Quadratics | Logistic = field(default_factory=lambda: Quadratics.random(1))
    cohort: int = 8
    batch_size: int = 2
    report: ReportBudget = "all"
    local_steps: int = 2
    server_lr: float = 1.0
    margin: float = 1.0

    @property
    def constants(self) -> ProblemConstants:
        """Exact for quadratics."""
        shared: dict[str, Any] = {
            "cohort": self.cohort,
            "batch_size": self.batch_size,
            "report": self.report,
            "margin": self.margin,
        }
        if isinstance(self.federation, Logistic):
            return self.federation.constants(radius=RADIUS, **shared)
        return self.federation.constants(**shared)

    def steps(self, horizon: int) -> StepSizes:
        """The largest that the corollary prescribes."""
        return prescribed_steps(self.constants, horizon, local_steps=self.local_steps, server_lr=self.server_lr)


def cases() -> tuple[Case, ...]:
    """A base case, and cases that differ from it in one property each."""
    return (
        Case("full participation, full reports"),
        Case("a quarter of the clients", cohort=2),
        Case("reports on one minibatch", report=1),
        Case("a quarter, one minibatch", cohort=2, report=1),
        Case("ten local steps", local_steps=10),
        Case("half the server rate", server_lr=0.5),
        Case("clients far apart", Quadratics.random(1, spread=0.4), cohort=2),
        Case("minibatches of one", Quadratics.random(1, noise=0.4), batch_size=1),
        Case("offset losses", Quadratics.random(1, offset=0.5), cohort=2, report=1),
        Case("a third of the margin", margin=1 / 3),
        Case("one task", Quadratics.random(1, tasks=1), cohort=2),
        Case("five tasks", Quadratics.random(1, tasks=5), cohort=2, report=1),
        Case("logistic regression", Logistic.random(1), cohort=2, report=1),
    )


@dataclass(frozen=True)
class Measured:
    """One case at one horizon.

    Attributes:
        case: The case.
        through: "ensemble" in closed form, or "engine".
        horizon: T.
        steps: The prescribed steps.
        observed: The measurements of the runs.
        terms: The bound's terms.
        refined: The bound's terms with the 1/M refinements for independent clients.
    """

    case: Case
    through: str
    horizon: int
    steps: StepSizes
    observed: Observed
    terms: BoundTerms
    refined: BoundTerms

    def row(self) -> dict[str, Any]:
        """For a table."""
        c = self.case.constants
        return {
            "case": self.case.name,
            "through": self.through,
            "runs": len(self.observed.squared_gradients),
            "horizon": self.horizon,
            "mean_squared_gradient": self.observed.mean,
            "largest_over_runs": float(self.observed.squared_gradients.max()),
            "bound": self.terms.total,
            "bound_refined": self.refined.total,
            **{f"term_{name}": value for name, value in self.terms.as_dict().items()},
            "report_error_mean": self.observed.report_error,
            "report_error_largest": self.observed.largest_report_error,
            "report_error_largest_standard_error": self.observed.largest_report_error_error,
            "report_error_bound": c.report_error_bound(),
            "report_error_bound_orthogonal": c.report_error_bound(orthogonal=True),
            "smallest_slack": float(self.observed.smallest_slack.min()),
            "margin": c.rho,
            "tasks": c.tasks,
            "clients": c.clients,
            "cohort": c.cohort,
            "batch_size": self.case.batch_size,
            "report": self.case.report,
            "local_steps": self.steps.local_steps,
            "local_lr": self.steps.local_lr,
            "server_lr": self.steps.server_lr,
        }


def measure(case: Case, horizon: int, *, runs: int, seed: int = 0, engine: bool = False) -> Measured:
    """Run a case, in closed form or through the sequential engine, and compute its bound."""
    steps, constants = case.steps(whole("horizon", horizon)), case.constants
    if engine or isinstance(case.federation, Logistic):
        if isinstance(case.federation, Logistic):
            reach = case.federation.radius(steps, horizon)
            if reach > RADIUS:
                raise InputError(
                    f"Case '{case.name}': its constants hold within {RADIUS:g} of the start, and over {horizon} "
                    f"rounds a trajectory may go as far as {reach:.3g}. Use a shorter horizon (--engine-horizon)."
                )
        observed = observe_engine(
            case.federation,
            constants,
            steps,
            horizon,
            batch_size=case.batch_size,
            report=case.report,
            seeds=range(seed, seed + runs),
        )
    else:
        ensemble = Ensemble(case.federation, constants, case.batch_size, case.report)
        observed = observe_ensemble(ensemble, steps, horizon, runs=runs, seed=seed)
    return Measured(
        case,
        "engine" if engine or isinstance(case.federation, Logistic) else "ensemble",
        horizon,
        steps,
        observed,
        stationarity_bound(constants, steps, horizon),
        stationarity_bound(constants, steps, horizon, orthogonal_gradients=True, orthogonal_reports=True),
    )


def terms_experiment(
    *, horizon: int = 256, runs: int = 400, engine_horizon: int = 24, engine_runs: int = 1, seed: int = 0
) -> Iterator[Measured]:
    """Every case, many runs in closed form and a few through the engine."""
    for case in cases():
        if not isinstance(case.federation, Logistic):
            yield measure(case, horizon, runs=runs, seed=seed)
        if engine_runs:
            yield measure(case, engine_horizon, runs=engine_runs, seed=seed, engine=True)


def terms_by_horizon(case: Case, horizons: Sequence[int]) -> list[dict[str, Any]]:
    """The formula alone: how each term shrinks with the horizon."""
    found = []
    for t in horizons:
        terms = stationarity_bound(case.constants, case.steps(t), t)
        found.append({"case": case.name, "horizon": t, **terms.as_dict(), "total": terms.total})
    return found
