r"""Safety: runs compared with the reference-safety certificate, for certified and other cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhv.paper.laboratory.ensemble import Ensemble
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.protocol.cohort import ReportBudget
from fedhv.theory._checks import probability, whole
from fedhv.theory.certificate import Certificate, certify, largest_horizon
from fedhv.theory.constants import ProblemConstants, StepSizes

QUANTILES = (0.0, 0.05, 0.5)


@dataclass(frozen=True)
class SafetyCase:
    """A federation with a reference `slack` above the initial losses, which need not be safe.

    Attributes:
        name: Its name in tables.
        federation: Its federation.
        slack: The slack of every task at the start.
        local_lr: η_ℓ.
        cohort: M.
        batch_size: b.
        report: B_rep.
        local_steps: K.
        horizon: T; the largest that can be certified by default.
        margin: ρ; the largest that can be certified by default.
    """

    name: str
    federation: Quadratics
    slack: float
    local_lr: float
    cohort: int = 2
    batch_size: int = 1
    report: ReportBudget = 1
    local_steps: int = 2
    horizon: int | None = None
    margin: float | None = None

    @property
    def constants(self) -> ProblemConstants:
        """Exact; the gradient bound holds on every trajectory, safe or not."""
        reference = self.federation.losses(self.federation.start) + self.slack
        return self.federation.constants(
            cohort=self.cohort, batch_size=self.batch_size, report=self.report, reference=reference, floor=1e-3
        )

    @property
    def steps(self) -> StepSizes:
        """K and η_ℓ, with η_g = 1."""
        return StepSizes(local_steps=self.local_steps, local_lr=self.local_lr)


def safety_cases() -> tuple[SafetyCase, ...]:
    """Cases that can be certified, then cases whose steps or references cannot."""
    calm = Quadratics.random(3, distance=0.2)
    wild = Quadratics.random(3, distance=0.1, noise=1.0, clients=4, examples=4)
    many = Quadratics.random(5, tasks=4, distance=0.2)
    return (
        SafetyCase("two tasks, small steps", calm, 1.0, 1e-4),
        SafetyCase("two tasks, larger steps", calm, 1.0, 3e-4),
        SafetyCase("close reference", calm, 0.3, 2e-5),
        SafetyCase("strong noise", wild, 2.0, 2e-5, cohort=1),
        SafetyCase("four tasks", many, 1.0, 2e-5),
        SafetyCase("close reference, large steps", wild, 0.1, 0.01, cohort=1, horizon=100, margin=0.01),
        SafetyCase("close reference, huge steps", wild, 0.3, 0.05, cohort=1, horizon=100, margin=0.03),
    )


@dataclass(frozen=True)
class Safety:
    r"""The result of a case.

    Attributes:
        case: The case.
        certificate: At the largest margin that can be certified, or the nearest to it.
        smallest: The smallest true slack of every run, over the starts of all rounds and the end.
        course: Quantiles over runs of the smallest slack, round by round, (T + 1) × 3.
    """

    case: SafetyCase
    certificate: Certificate
    smallest: np.ndarray
    course: np.ndarray

    @property
    def violations(self) -> int:
        r"""Runs in which a true slack fell below the certificate's ρ."""
        return int((self.smallest < self.certificate.margin).sum())

    @property
    def unsafe(self) -> int:
        """Runs in which a loss exceeded its reference."""
        return int((self.smallest <= 0).sum())

    def row(self) -> dict[str, Any]:
        """For a table."""
        c = self.certificate
        return {
            "case": self.case.name,
            "certified": c.certified,
            "runs": len(self.smallest),
            "horizon": c.horizon,
            "delta": c.delta,
            "margin": c.margin,
            "slack_below_margin": self.violations,
            "loss_above_reference": self.unsafe,
            "smallest_slack": float(self.smallest.min()),
            "buffer": c.buffer,
            "budget": c.budget,
            "spent": c.spent,
            "spent_start": c.initial_value,
            "spent_drift": c.drift_total,
            "spent_fluctuation": c.fluctuation,
            "local_lr": self.case.local_lr,
            "local_steps": self.case.local_steps,
            "reasons": "; ".join(c.reasons),
        }


def safety(case: SafetyCase, *, runs: int, delta: float = 0.05, seed: int = 0) -> Safety:
    """Certify a case as far as possible, then run it."""
    constants, steps = case.constants, case.steps
    horizon = case.horizon or max(1, largest_horizon(constants, steps, probability("delta", delta)))
    certificate = certify(constants, steps, horizon, delta, case.margin)
    reference = np.array(constants.reference)
    smallest = np.full(whole("runs", runs), np.inf)
    course = []
    ensemble = Ensemble(case.federation, constants, case.batch_size, case.report)
    for moment in ensemble.simulate(steps, horizon, runs=runs, seed=seed):
        slack = (reference - moment.losses).min(axis=1)
        np.minimum(smallest, slack, out=smallest)
        course.append(np.quantile(slack, QUANTILES))
    return Safety(case, certificate, smallest, np.array(course))


def safety_experiment(*, runs: int = 1000, delta: float = 0.05, seed: int = 0) -> Iterator[Safety]:
    """Every case."""
    for case in safety_cases():
        yield safety(case, runs=runs, delta=delta, seed=seed)


def certified_horizons(case: SafetyCase, rates: np.ndarray, delta: float = 0.05) -> list[dict[str, Any]]:
    """The largest certified horizon as steps shrink: T grows faster than 1/η."""
    found = []
    for rate in rates:
        steps = StepSizes(local_steps=case.local_steps, local_lr=float(rate))
        horizon = largest_horizon(case.constants, steps, delta)
        found.append(
            {
                "case": case.name,
                "local_lr": float(rate),
                "horizon": horizon,
                "effective_time": horizon * steps.effective,
                "delta": delta,
            }
        )
    return found
