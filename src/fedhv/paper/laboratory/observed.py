"""Measurements of the laboratory's runs, of the ensemble in closed form or of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhv.engines import Engine, Sequential
from fedhv.paper.laboratory.ensemble import Ensemble
from fedhv.paper.laboratory.logistic import Logistic
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.protocol.cohort import ReportBudget
from fedhv.protocol.local import LocalTraining
from fedhv.runs.threads import one_thread
from fedhv.simulation.plan import Plan
from fedhv.simulation.rounds import simulate
from fedhv.theory.constants import ProblemConstants, StepSizes


@dataclass(frozen=True)
class Observed:
    r"""Runs of one horizon, one row each.

    Attributes:
        squared_gradients: $\frac1T\sum_t\|\nabla\Phi(\theta^t)\|^2$.
        report_error: $\|\hat F^t - F(\theta^t)\|_\infty^2$, the mean over runs and rounds: at most $\Xi_{\rm loss,T}$.
        largest_report_error: The maximum over rounds of the mean over runs: an estimate of $\Xi_{\rm loss,T}$, which
            is too large if there are few runs.
        largest_report_error_error: The standard error of that mean over runs.
        smallest_slack: Over rounds and tasks.
    """

    squared_gradients: np.ndarray
    report_error: float
    largest_report_error: float
    largest_report_error_error: float
    smallest_slack: np.ndarray

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return float(self.squared_gradients.mean())

    @property
    def error(self) -> float:
        """Its standard error; zero for one run or if nothing is random."""
        return _standard_error(self.squared_gradients)


def observe_ensemble(ensemble: Ensemble, steps: StepSizes, horizon: int, *, runs: int, seed: int = 0) -> Observed:
    """Runs of the ensemble."""
    return observe_horizons(ensemble, [steps], [horizon], runs=runs, seed=seed)[0]


def observe_horizons(
    ensemble: Ensemble, steps: Sequence[StepSizes], horizons: Sequence[int], *, runs: int, seed: int = 0
) -> list[Observed]:
    """Runs of the ensemble with several horizons at once, largest first, each with its own steps."""
    every = [(s, t) for s, t in zip(steps, horizons, strict=True) for _ in range(runs)]
    reference = np.array(ensemble.constants.reference)
    total = np.zeros(len(every))
    least = np.full(len(every), np.inf)
    worst, summed, unsure = np.zeros((3, len(horizons)))
    ends = np.repeat(np.array(horizons), runs)
    for moment in ensemble.simulate([s for s, _ in every], [t for _, t in every], seed=seed):
        rows = len(moment.models)
        ending = ends[rows - 1] == moment.round  # the shortest horizon; elsewhere every row counts
        running = ends[:rows] > moment.round if ending else None
        total[:rows] += moment.squared_gradients if running is None else np.where(running, moment.squared_gradients, 0)
        slack = np.minimum.reduce(reference - moment.losses, axis=1)
        np.minimum(least[:rows], slack, out=least[:rows])
        if moment.reports is not moment.losses:
            errors = np.maximum.reduce((moment.reports - moment.losses) ** 2, axis=1)
            errors = (errors if running is None else np.where(running, errors, 0)).reshape(-1, runs)
            means = errors.mean(axis=1)
            summed[: len(means)] += means
            for i in (means > worst[: len(means)]).nonzero()[0]:
                worst[i], unsure[i] = means[i], _standard_error(errors[i])
    return [
        Observed(
            squared_gradients=total[i * runs : (i + 1) * runs] / t,
            report_error=float(summed[i]) / t,
            largest_report_error=float(worst[i]),
            largest_report_error_error=float(unsure[i]),
            smallest_slack=least[i * runs : (i + 1) * runs],
        )
        for i, t in enumerate(horizons)
    ]


def observe_engine(
    federation: Quadratics | Logistic,
    constants: ProblemConstants,
    steps: StepSizes,
    horizon: int,
    *,
    batch_size: int,
    report: ReportBudget = "all",
    seeds: Sequence[int] = (0,),
    engine: type[Engine] = Sequential,
) -> Observed:
    """Runs of FedHV on an engine."""
    method = federation.method(constants, steps, report)
    local = LocalTraining(steps.local_steps, batch_size, steps.local_lr, sampling="replacement")
    reference = np.array(constants.reference)
    averages, slacks, errors = [], [], []
    with one_thread(), engine(federation.problem()) as where:
        for seed in seeds:
            plan = Plan(horizon, constants.cohort, local, evaluate_every=0, seed=seed)
            theta = federation.start
            squared, lows, errs = [], [], []
            for finished in simulate(where, method, plan):
                losses = federation.losses(theta)
                squared.append(float(federation.squared_gradient(theta, reference)))
                lows.append((reference - losses).min())
                errs.append(float(((np.array(finished.report) - losses) ** 2).max()))
                theta = finished.state.model.double().cpu().numpy()
            averages.append(np.mean(squared))
            slacks.append(min(*lows, (reference - federation.losses(theta)).min()))
            errors.append(errs)
    by_round = np.array(errors).T
    worst = by_round[by_round.mean(axis=1).argmax()]
    return Observed(
        squared_gradients=np.array(averages),
        report_error=float(by_round.mean()),
        largest_report_error=float(worst.mean()),
        largest_report_error_error=_standard_error(worst),
        smallest_slack=np.array(slacks),
    )


def _standard_error(values: np.ndarray) -> float:
    """The standard error of the mean; zero for one value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
