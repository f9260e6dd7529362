r"""Many runs of FedHV on federated quadratics at once, in closed form.

A quadratic's Hessian is the same for all clients. So the mean of a cohort's local trajectories follows the same
recursion, with the means of its minibatches. A round is then a few array operations for all runs together, which
allows horizons of a million rounds. The algorithm is that of `fedhv.methods.FedHV` on `Quadratics.problem()`: with
the draws of an engine it gives the engine's models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedhv.paper.laboratory.federation import floor_of
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.protocol.cohort import ReportBudget
from fedhv.support.errors import InputError
from fedhv.theory._checks import whole
from fedhv.theory.constants import ProblemConstants, StepSizes

CHUNK = 200_000
"""The number of random numbers that are drawn at once."""


class Moment(NamedTuple):
    r"""All runs before a round's update, R rows each.

    Attributes:
        round: t.
        models: $\theta^t$, R × d.
        weights: $w^t$, R × m.
        losses: $F(\theta^t)$, R × m.
        reports: $\hat F^t$, R × m.
        squared_gradients: $\|\nabla\Phi(\theta^t)\|^2$, R numbers; NaN for unsafe runs.
    """

    round: int
    models: np.ndarray
    weights: np.ndarray
    losses: np.ndarray
    reports: np.ndarray
    squared_gradients: np.ndarray


@dataclass(frozen=True)
class EnsembleDraws:
    """The random draws of C rounds of R runs, as positions.

    Attributes:
        clients: The cohorts, C × R × M.
        batches: The minibatches, C × R × M × K × b.
        reports: The reports' examples, C × R × M × q; None for full reports.
    """

    clients: np.ndarray
    batches: np.ndarray
    reports: np.ndarray | None


Step = tuple[np.ndarray | None, np.ndarray | None, Any]
"""Means of a round's draws over the cohort: the minibatches' points (R × K × m × d), the reports' points (R × m × d)
and their $L/2\\,\\|a\\|^2 + h$ (R × m); None if all clients participate with all their examples."""


@dataclass(frozen=True)
class Ensemble:
    """Runs of FedHV that differ in their draws and learning rates.

    Attributes:
        federation: The federation of all runs.
        constants: Its constants, with the reference, the floor and M.
        batch_size: b.
        report: $B_{\\rm rep}$.
    """

    federation: Quadratics
    constants: ProblemConstants
    batch_size: int = 1
    report: ReportBudget = "all"

    def simulate(
        self,
        steps: StepSizes | Sequence[StepSizes],
        horizons: int | Sequence[int],
        *,
        runs: int | None = None,
        seed: int = 0,
        draws: EnsembleDraws | None = None,
    ) -> Iterator[Moment]:
        """The moments t = 0, 1, …, T of all runs. Nothing is drawn at T, and the report is the loss itself.

        Args:
            steps: The step sizes of all runs, or one per run with the same K and server rate.
            horizons: T of all runs, or one per run in non-increasing order. Ended runs are dropped from the rows.
            runs: R, if steps and horizon are common to all runs.
            seed: The seed of all draws.
            draws: Given draws of one run, as many rounds as the horizon, instead of random ones.
        """
        size = next((len(x) for x in (steps, horizons) if isinstance(x, Sequence)), runs or 1)
        each = list(steps) if isinstance(steps, Sequence) else [steps] * size
        ends = list(horizons) if isinstance(horizons, Sequence) else [horizons] * size
        if len(each) != len(ends) or any(a < b for a, b in pairwise(ends)):
            raise InputError("Parameter `horizons` should not increase, with one number for every run.")
        if len({(s.local_steps, s.server_lr) for s in each}) > 1:
            raise InputError("Parameter `steps` should have the same local steps and server rate in all runs.")
        for step in each:
            self.federation.check_steps(step)
        return self._simulate(each, [whole("horizons", t) for t in ends], np.random.default_rng(seed), draws)

    def _simulate(
        self, steps: list[StepSizes], ends: list[int], rng: np.random.Generator, given: EnsembleDraws | None
    ) -> Iterator[Moment]:
        f, c = self.federation, self.constants
        reference, floor, smooth = np.array(c.reference), floor_of(c), f.smoothness
        half, centres, transposed = smooth / 2, f.centres, np.ascontiguousarray(f.centres.T)
        level = half * (centres**2).sum(axis=1) + f.least
        K, server = steps[0].local_steps, steps[0].server_lr
        rates = np.array([s.local_lr for s in steps])[:, None]
        theta = np.tile(f.start, (len(steps), 1))
        w = np.full((len(steps), f.tasks), 1 / f.tasks)
        stretch: Iterator[Step] = iter(())
        for t in range(ends[0] + 1):
            if t > ends[len(theta) - 1]:
                active = sum(1 for end in ends if end >= t)
                theta, w, rates, stretch = theta[:active], w[:active], rates[:active], iter(())
            squares = _rowwise(theta, theta)[:, None]
            # L/2 ‖θ − a‖² + h, and below the sum of L/s (θ − a), as matrix products.
            losses = half * (squares - 2 * (theta @ transposed)) + level
            slack = reference - losses
            scale = smooth / slack
            gradient = _row_sums(scale) * theta - scale @ centres
            squared = _rowwise(gradient, gradient)
            if np.minimum.reduce(slack, axis=None) <= 0:
                squared = np.where((slack > 0).all(axis=1), squared, np.nan)
            if t == ends[0]:
                yield Moment(t, theta, w, losses, losses, squared)
                return
            step = next(stretch, None)
            if step is None:
                stretch = self._stretch(len(theta), K, ends[0] - t, rng, given)
                step = next(stretch)
            targets, seen, height = step
            if seen is None:
                report = losses
            else:
                report = half * (squares - 2 * (seen @ theta[..., None])[..., 0]) + height
            yield Moment(t, theta, w, losses, report, squared)
            pull = w * smooth
            total = rates * _row_sums(pull)
            local = theta
            for s in range(K):
                push = pull @ centres if targets is None else (pull[:, None] @ targets[:, s])[:, 0]
                local = local - total * local + rates * push
            theta = local if server == 1 else theta + server * (local - theta)
            inverse = 1 / np.maximum(reference - report, floor)
            w = inverse / _row_sums(inverse)

    def _stretch(
        self, runs: int, K: int, left: int, rng: np.random.Generator, given: EnsembleDraws | None
    ) -> Iterator[Step]:
        """The means over the cohort of the draws of the next rounds."""
        f, m, n = self.federation, self.constants.cohort, self.federation.examples
        q = f.report_size(self.report, self.batch_size)
        if given is None and n == 1 and m == f.clients:  # nothing is random
            return iter([(None, None, None)] * min(left, CHUNK))
        if given is None:
            rounds = min(left, max(1, CHUNK // (runs * m * (K * self.batch_size + n))))
            given = self._draw(rounds, runs, K, q, rng)
        who = given.clients
        targets = f.points[who[..., None, None], given.batches].mean(axis=4).mean(axis=2)
        if given.reports is None and m == f.clients:
            return iter([(each, None, None) for each in targets])
        level = f.smoothness / 2 * (f.points**2).sum(axis=-1) + f.offsets
        if given.reports is None:
            seen, height = f.points.mean(axis=1)[who].mean(axis=2), level.mean(axis=1)[who].mean(axis=2)
        else:
            seen = f.points[who[..., None], given.reports].mean(axis=3).mean(axis=2)
            height = level[who[..., None], given.reports].mean(axis=3).mean(axis=2)
        return iter(list(zip(targets, seen, height, strict=True)))

    def _draw(self, rounds: int, runs: int, K: int, q: int, rng: np.random.Generator) -> EnsembleDraws:
        f, m = self.federation, self.constants.cohort
        shape = (rounds, runs, m)
        if m == f.clients:
            clients = np.broadcast_to(np.arange(m), shape)
        else:
            clients = rng.random((rounds, runs, f.clients)).argsort(axis=-1)[..., :m]
        batches = rng.integers(f.examples, size=(*shape, K, self.batch_size))
        full = q == f.examples
        reports = None if full else rng.random((*shape, f.examples)).argsort(axis=-1)[..., :q]
        return EnsembleDraws(clients, batches, reports)


def _row_sums(a: np.ndarray) -> np.ndarray:
    """The sums of rows, as a column. `a.sum` is the same by way of Python, which takes longer than so few numbers."""
    return np.asarray(np.add.reduce(a, axis=1, keepdims=True))


def _rowwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The inner products of rows."""
    return np.asarray(np.einsum("ij,ij->i", a, b))
