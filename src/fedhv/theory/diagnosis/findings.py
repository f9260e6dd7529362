r"""The results of a diagnosis: at measured models, for every round, and for other cohorts and budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedhv.methods.weights import inverse_slack_weights, log_hypervolume
from fedhv.protocol.cohort import ReportBudget
from fedhv.theory.barrier import slack_floor
from fedhv.theory.diagnosis.measuring import PopulationLosses
from fedhv.theory.diagnosis.reading import FedHVRun
from fedhv.theory.fairness import proportional_fairness_gap
from fedhv.theory.hypervolume import gradient_by_identity
from fedhv.theory.pareto import pareto_residual, residual_bound
from fedhv.theory.reports import report_error_bound
from fedhv.theory.staleness import INITIAL_BOUND, Staleness, staleness_of_run


@dataclass(frozen=True)
class ModelFinding:
    r"""The quantities of the theory at $\theta^t$; None if a quantity is unknown.

    Attributes:
        round: t, the number of rounds before the model.
        source: "start", "previous", "newest" or "replay".
        losses: $F(\theta^t)$.
        slack: $s_i(\theta^t)$, the true slacks.
        safe: Whether all true slacks are positive; otherwise Φ is undefined.
        value: $\Phi(\theta^t)$.
        slack_floor: $e^{-\Phi}/R_{\max}$, which Φ guarantees to every slack.
        gradient_norm: $\|\nabla\Phi(\theta^t)\|$.
        pareto_residual: $\mathcal P(\theta^t)$.
        pareto_bound: $\|\nabla\Phi\|/c(\theta)$.
        fairness_gap: PFgap.
        loss_spread: $\omega_i(\theta^t)$.
        report_noise: $\tau_i(\theta^t)$.
        report_error: $\|\hat F^t - F(\theta^t)\|_\infty^2$ of this run.
        report_error_bound: The bound on its mean, Lemma A.20.
        report_error_bound_orthogonal: The bound for independent clients, as in a run: $\tau_i^2/M$.
        staleness: $\|w^t - w^{\star,t}\|_1$.
        staleness_bound: Its bound with the local constant $2/\tilde\rho$.
        staleness_bound_global: Its bound with $2/\rho_{\rm clip}$.
    """

    round: int
    source: str
    losses: tuple[float, ...]
    slack: tuple[float, ...]
    safe: bool
    value: float | None
    slack_floor: float | None
    gradient_norm: float | None
    pareto_residual: float
    pareto_bound: float | None
    fairness_gap: float | None
    loss_spread: tuple[float, ...]
    report_noise: tuple[float, ...]
    report_error: float | None
    report_error_bound: float
    report_error_bound_orthogonal: float
    staleness: float | None
    staleness_bound: float | None
    staleness_bound_global: float | None

    @property
    def smallest_slack(self) -> float:
        """The smallest slack over tasks."""
        return min(self.slack)


def examine(
    run: FedHVRun,
    t: int,
    source: str,
    population: PopulationLosses,
    gradients: Tensor,
    weights: np.ndarray | None,
    before: np.ndarray | None,
) -> ModelFinding:
    r"""All quantities of the theory at $\theta^t$.

    Args:
        run: The model's run.
        t: The number of rounds before the model.
        source: The origin of the model.
        population: The clients' losses at the model.
        gradients: $\nabla f_i(\theta^t)$.
        weights: $w^t$, if known.
        before: $F(\theta^{t-1})$, if known.
    """
    r, f = np.array(run.reference), population.losses
    slack = r - f
    safe = bool((slack > 0).all())
    value = float(log_hypervolume(f, r)) if safe else None
    gradient = gradient_by_identity(gradients, f, r) if safe else None
    norm = None if gradient is None else float(gradient.norm())
    omega = population.loss_spread
    tau = population.report_noise(run.report, run.setting.training.batch_size)
    clients, cohort = len(population.sizes), run.setting.federation.participants
    reported = run.reported(t)
    labelled = run.labelled_tasks(t)
    stale, local, wide = _staleness(run, t, f, weights, before)
    return ModelFinding(
        round=t,
        source=source,
        losses=_floats(f),
        slack=_floats(slack),
        safe=safe,
        value=value,
        slack_floor=None if value is None else slack_floor(value, r),
        gradient_norm=norm,
        pareto_residual=pareto_residual(gradients).value,
        pareto_bound=None if norm is None else residual_bound(norm, f, r),
        fairness_gap=None if gradient is None else proportional_fairness_gap(gradient),
        loss_spread=_floats(omega),
        report_noise=_floats(tau),
        report_error=None if reported is None else float(np.abs(reported - f)[labelled].max() ** 2),
        report_error_bound=report_error_bound(omega, tau, clients, cohort),
        report_error_bound_orthogonal=report_error_bound(omega, tau, clients, cohort, orthogonal=True),
        staleness=stale,
        staleness_bound=local,
        staleness_bound_global=wide,
    )


def _staleness(
    run: FedHVRun, t: int, losses: np.ndarray, weights: np.ndarray | None, before: np.ndarray | None
) -> tuple[float | None, float | None, float | None]:
    """The measured staleness, its local bound and its global bound."""
    if weights is None:
        return None, None, None
    ideal = inverse_slack_weights(losses, np.array(run.reference), run.floor, run.preferences)
    measured = float(np.abs(weights - ideal).sum())
    reported = run.reported(t - 1)
    if t == 0:
        return measured, INITIAL_BOUND, INITIAL_BOUND
    if before is None or reported is None:
        return measured, None, None

    def pair(local: bool) -> Staleness:
        w, estimates, truth = (np.stack(both) for both in ((weights, weights), (reported, reported), (before, losses)))
        return staleness_of_run(w, estimates, truth, run.reference, run.floor, local=local, preferences=run.preferences)

    return measured, float(pair(True).bound[1]), float(pair(False).bound[1])


def margin_rows(run: FedHVRun, models: Sequence[ModelFinding]) -> list[dict[str, Any]]:
    """The server's estimated slacks of every round, and the true slacks at measured models."""
    true = {model.round: model for model in models}
    rows = []
    known = {"report": run.reports, "slack": run.slacks, "weights": run.weights}
    for t in range(run.rounds):
        row: dict[str, Any] = {"round": t + 1, "smallest_estimated_slack": min(run.slacks[t].tolist())}
        model = true.get(t)
        row["smallest_true_slack"] = None if model is None else model.smallest_slack
        row["floored"] = run.floored[t]
        for kind, values in known.items():
            row |= {f"{kind}: {task}": value for task, value in zip(run.tasks, values[t].tolist(), strict=True)}
        if model is not None:
            row |= {f"true slack: {task}": value for task, value in zip(run.tasks, model.slack, strict=True)}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Alternative:
    r"""The bound on $\Xi_{\rm loss}$ for another cohort size or report budget.

    Attributes:
        cohort: M.
        report: $B_{\rm rep}$.
        participation_part: $\chi_N(M)\sum_i\omega_i^2$.
        report_part: $\sum_i\tau_i^2$, over M for independent clients.
        bound: Their sum with independent clients.
        bound_any: Their sum without independence.
        ratio: `bound` relative to that of the run.
        current: Whether cohort and report are those of the run.
    """

    cohort: int
    report: ReportBudget
    participation_part: float
    report_part: float
    bound: float
    bound_any: float
    ratio: float
    current: bool


def alternatives(run: FedHVRun, population: PopulationLosses) -> list[Alternative]:
    """The report-error bound for other M and B_rep, at the losses of one model."""
    n, m = len(population.sizes), run.setting.federation.participants
    b = run.setting.training.batch_size
    full = math.ceil(int(population.sizes.max()) / b)
    cohorts = sorted({min(n, max(1, size)) for size in (m // 2, m, 2 * m, 4 * m, n)})
    own = full if run.report == "all" else int(run.report)
    finite = sorted({q for q in (1, 2, 4, own, 2 * own, 4 * own) if q < full})
    budgets: list[ReportBudget] = [*finite, "all"]
    if run.report != "all" and run.report not in budgets:
        budgets.insert(-1, run.report)
    omega = population.loss_spread
    zero = np.zeros_like(omega)

    def bound(size: int, tau: np.ndarray, orthogonal: bool = True) -> float:
        return report_error_bound(omega, tau, n, size, orthogonal=orthogonal)

    mine = bound(m, population.report_noise(run.report, b))
    found = []
    for size in cohorts:
        for budget in budgets:
            tau = population.report_noise(budget, b)
            total, participation = bound(size, tau), bound(size, zero)
            found.append(
                Alternative(
                    cohort=size,
                    report=budget,
                    participation_part=participation,
                    report_part=total - participation,
                    bound=total,
                    bound_any=bound(size, tau, orthogonal=False),
                    ratio=total / mine if mine > 0 else (1.0 if total == 0 else math.inf),
                    current=size == m and budget == run.report,
                )
            )
    return found


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
