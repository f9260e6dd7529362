"""Detection of divergence, with an error that names the round, the task, the client and what to try.

Everything here is checked before a round is recorded and checkpointed, so the last recorded state is a good one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.support.errors import Diverged, diverged

SUSPECT = 10.0
"""A client is named in the error if its update is this many times as long as the cohort's median."""


def step_norm(layout: Layout, before: Tensor, after: Tensor) -> Tensor:
    """The norm of a round's step. Running statistics are left out: they follow the scale of the inputs."""
    return _norm(layout, after - before)


def check_step(
    layout: Layout, before: Tensor, step: float, largest: float, factor: float, number: int, norms: Mapping[int, float]
) -> None:
    """Raise if a step is longer than the model and more than `factor` times every step before it.

    Args:
        layout: Of the model.
        before: The model before the round.
        step: The norm of the round's step.
        largest: The norm of the longest step before it; 0 in the first round, where the model's own norm is the
            measure.
        factor: The largest allowed ratio (`server.max_jump`).
        number: The round.
        norms: The norms of the updates that were taken, by client.
    """
    if step <= factor * largest:
        return
    size = float(_norm(layout, before))
    if size == 0 or step <= (size if largest > 0 else factor * size):
        return
    measure, what = (largest, "the longest step before it") if largest > 0 else (size, "the norm of the model")
    raise Diverged(
        f"Round {number} would move the model by {step:.3g}, more than {factor:g} times (`server.max_jump`) {what}, "
        f"{measure:.3g}: the run has diverged, or an update is wrong.{suspect(norms)} Bound updates with "
        "`server.outlier` or `server.max_update`, or lower the method's local_lr or server_lr."
    )


def suspect(norms: Mapping[int, float]) -> str:
    """A sentence that names the client whose update is far longer than the others'; empty if there is none."""
    if len(norms) < 2:
        return ""
    client = max(norms, key=lambda k: norms[k] if math.isfinite(norms[k]) else math.inf)
    median = statistics.median(norms.values())
    if norms[client] <= SUSPECT * median:
        return ""
    return f" Client {client} sent an update of norm {norms[client]:.3g}; the cohort's median is {median:.3g}."


def _norm(layout: Layout, vector: Tensor) -> Tensor:
    if any(layout.statistics):
        vector = vector[~layout.statistic_entries.to(vector.device)]
    norm: Tensor = torch.linalg.vector_norm(vector, dtype=torch.float64)
    return norm


def worst_task(evaluation: Evaluation) -> TaskScore:
    """The task with the largest test loss. A loss that is not finite counts as the largest."""
    return max(evaluation.tasks, key=lambda task: task.loss if math.isfinite(task.loss) else math.inf)


def exploded(loss: float, first: float, factor: float) -> bool:
    """Whether a loss is more than `factor` times the first one.

    Losses may be negative, for example negative log-likelihoods of densities. Then the loss may rise above the first
    one by `factor` − 1 times its absolute value.
    """
    return not loss <= first + (factor - 1) * (abs(first) or 1.0)


def check_explosion(
    evaluation: Evaluation, baseline: float | None, factor: float, number: int, norms: Mapping[int, float] | None = None
) -> float:
    """Raise if a test loss has exploded. Returns the baseline for later evaluations.

    Args:
        evaluation: Of the model after a round.
        baseline: The largest test loss of the first evaluation; None for the first evaluation.
        factor: The largest allowed ratio to the baseline.
        number: The round.
        norms: The norms of the updates that were taken, by client.
    """
    worst = worst_task(evaluation)
    if not math.isfinite(worst.loss):
        raise diverged(f"After round {number} the test loss of task '{worst.name}' is", suspect(norms or {}).strip())
    if baseline is None:
        return worst.loss
    if exploded(worst.loss, baseline, factor):
        raise Diverged(
            f"After round {number} the test loss of task '{worst.name}' is {worst.loss:.4g}, more than {factor:g} "
            f"times (`evaluation.explosion`) the first evaluation's {baseline:.4g}: the run has diverged. Lower the "
            f"method's local_lr or server_lr.{suspect(norms or {})}"
        )
    return baseline
