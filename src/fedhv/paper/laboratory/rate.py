r"""Rate: $\frac1T\sum_t\mathbb E\|\nabla\Phi\|^2$ over horizons: Corollary A.24."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhv.paper.laboratory.ensemble import Ensemble
from fedhv.paper.laboratory.observed import Observed, observe_horizons
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.theory._checks import whole
from fedhv.theory.constants import ProblemConstants, StepSizes
from fedhv.theory.convergence import largest_base_step, stationarity_bound, step_conditions

FITTED = 3
"""The number of longest horizons to which the slope is fitted."""


@dataclass(frozen=True)
class RateCurve:
    r"""One federation and one base step over a range of horizons.

    Attributes:
        name: Its name in tables.
        constants: The constants of the federation.
        base_step: $\eta_0$; the steps of horizon T are $\eta_{\rm eff} = \eta_0/\sqrt T$.
        horizons: T, longest first.
        observed: The measurements, one per horizon.
        bounds: The theorem's bounds; None if its conditions exclude the steps.
    """

    name: str
    constants: ProblemConstants
    base_step: float
    horizons: tuple[int, ...]
    observed: tuple[Observed, ...]
    bounds: tuple[float | None, ...]

    @property
    def admissible(self) -> bool:
        """Whether the theorem applies to all its horizons."""
        return all(bound is not None for bound in self.bounds)

    @property
    def report_error(self) -> float:
        r"""The measured $\Xi_{\rm loss}$ at the longest horizon, which has the most samples."""
        return self.observed[0].report_error

    @property
    def height(self) -> float:
        """The measured average at the longest horizon."""
        return self.observed[0].mean

    @property
    def slope(self) -> tuple[float, float]:
        """The slope in doubly logarithmic scale at the longest horizons, and its standard error over runs."""
        x = np.log(np.array(self.horizons[:FITTED], dtype=float))
        y = np.array([math.log(each.mean) for each in self.observed[:FITTED]])
        error = np.array([each.error / each.mean for each in self.observed[:FITTED]])
        lever = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        return float(lever @ y), float(np.sqrt((lever**2 * error**2).sum()))

    def rows(self) -> list[dict[str, Any]]:
        """For a table, shortest horizon first."""
        slope, error = self.slope
        return [
            {
                "curve": self.name,
                "horizon": t,
                "base_step": self.base_step,
                "admissible": bound is not None,
                "runs": len(seen.squared_gradients),
                "mean_squared_gradient": seen.mean,
                "standard_error": seen.error,
                "theorem_bound": bound,
                "report_error_measured": seen.report_error,
                "report_error_bound": self.constants.report_error_bound(),
                "report_error_bound_orthogonal": self.constants.report_error_bound(orthogonal=True),
                "smallest_slack": float(seen.smallest_slack.min()),
                "margin": self.constants.rho,
                "slope_of_longest": slope,
                "slope_standard_error": error,
            }
            for t, seen, bound in reversed(list(zip(self.horizons, self.observed, self.bounds, strict=True)))
        ]


def pair(
    *,
    clients: int,
    examples: int,
    distance: float,
    start: float,
    spread: float = 0.0,
    noise: float = 0.0,
    offset: float = 0.0,
) -> Quadratics:
    """Two tasks with optima at distance `distance`, started at distance `start` from their midpoint.

    One example in `examples` of the first task has the offset `examples * offset`. The mean offset is `offset`, and a
    report on a few examples is skewed. This biases the weights, and averaging does not remove the bias.
    """
    rng = np.random.default_rng(0)
    middle = np.array([[-distance / 2, 0.0], [distance / 2, 0.0]])
    around = rng.standard_normal((clients, 1, 2, 2))
    within = rng.standard_normal((clients, examples, 2, 2))
    around -= around.mean(axis=0)
    within -= within.mean(axis=1, keepdims=True)
    offsets = np.zeros((clients, examples, 2))
    offsets[:, 0, 0] = examples * offset
    return Quadratics(np.ones(2), middle + spread * around + noise * within, offsets, np.array([0.0, start]))


def rate_curve(
    name: str,
    ensemble: Ensemble,
    base_step: float,
    horizons: Sequence[int],
    *,
    local_steps: int = 1,
    runs: int = 1,
    seed: int = 0,
) -> RateCurve:
    """Run the schedule at every horizon."""
    ordered = sorted((whole("horizons", t) for t in horizons), reverse=True)
    steps = [StepSizes(local_steps=local_steps, local_lr=base_step / (local_steps * math.sqrt(t))) for t in ordered]
    observed = observe_horizons(ensemble, steps, ordered, runs=runs, seed=seed)
    c = ensemble.constants
    bounds = [
        stationarity_bound(c, s, t).total
        if step_conditions(c, s).hold and base_step <= largest_base_step(c, 1.0)
        else None
        for s, t in zip(steps, ordered, strict=True)
    ]
    return RateCurve(name, c, base_step, tuple(ordered), tuple(observed), tuple(bounds))


def rate_experiment(
    *, longest: int = 2**19, runs: int = 8, noisy_longest: int = 2**14, seed: int = 0
) -> tuple[RateCurve, ...]:
    r"""The rate of convergence, measured in three experiments.

    1. Full participation, full reports, full-batch steps, the largest base step that the theorem allows.
    2. The same with minibatch noise and a base step of $1/\max_i L_i$. The theorem's condition on the base step is
       sufficient, not necessary, and so small that its rate shows only from some hundred thousand rounds on.
    3. That base step with reports on one example per client, with skewed losses, in growing size.

    Args:
        longest: The longest horizon of the first curve.
        runs: The number of runs of every random curve.
        noisy_longest: The longest horizon of the other curves.
        seed: The seed of all draws.
    """
    quiet = pair(clients=4, examples=1, distance=0.1, start=0.1, spread=0.02)
    exact = quiet.constants(cohort=4, batch_size=1, margin=1.0)
    curves = [
        rate_curve(
            "full reports, admissible base step",
            Ensemble(quiet, exact),
            largest_base_step(exact, 1.0),
            _powers(64, whole("longest", longest, least=2**8)),
        )
    ]
    short = _powers(16, whole("noisy_longest", noisy_longest, least=2**8))
    noisy = pair(clients=4, examples=4, distance=0.1, start=0.1, spread=0.02, noise=0.05)
    curves.append(
        rate_curve(
            "full reports, base step 1/L",
            Ensemble(noisy, noisy.constants(cohort=4, batch_size=1, margin=1.0)),
            1.0,
            short,
            runs=runs,
            seed=seed,
        )
    )
    for offset in (0.0, 0.25, 0.5, 1.0):
        skewed = pair(clients=2, examples=4, distance=1.6, start=0.1, offset=offset)
        constants = skewed.constants(cohort=2, batch_size=1, report=1, margin=0.5)
        name = f"reports on one example, offset {offset:g}"
        curves.append(rate_curve(name, Ensemble(skewed, constants, 1, 1), 1.0, short, runs=runs, seed=seed))
    return tuple(curves)


def _powers(first: int, last: int) -> list[int]:
    return [first * 2**i for i in range(int(math.log2(last / first)) + 1)]
