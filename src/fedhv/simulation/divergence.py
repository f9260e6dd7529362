"""Detection of divergence, with an error that names the round, the task and what to try."""

from __future__ import annotations

import math

from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.support.errors import Diverged, diverged


def worst_task(evaluation: Evaluation) -> TaskScore:
    """The task with the largest test loss. A loss that is not finite counts as the largest."""
    return max(evaluation.tasks, key=lambda task: task.loss if math.isfinite(task.loss) else math.inf)


def exploded(loss: float, first: float, factor: float) -> bool:
    """Whether a loss is more than `factor` times the first one.

    Losses may be negative, for example negative log-likelihoods of densities. Then the loss may rise above the first
    one by `factor` − 1 times its absolute value.
    """
    return not loss <= first + (factor - 1) * (abs(first) or 1.0)


def check_explosion(evaluation: Evaluation, baseline: float | None, factor: float, number: int) -> float:
    """Raise if a test loss has exploded. Returns the baseline for later evaluations.

    Args:
        evaluation: Of the model after a round.
        baseline: The largest test loss of the first evaluation; None for the first evaluation.
        factor: The largest allowed ratio to the baseline.
        number: The round.
    """
    worst = worst_task(evaluation)
    if not math.isfinite(worst.loss):
        raise diverged(f"After round {number} the test loss of task '{worst.name}' is")
    if baseline is None:
        return worst.loss
    if exploded(worst.loss, baseline, factor):
        raise Diverged(
            f"After round {number} the test loss of task '{worst.name}' is {worst.loss:.4g}, more than {factor:g} "
            f"times (`evaluation.explosion`) the first evaluation's {baseline:.4g}: the run has diverged. Lower the "
            "method's local_lr or server_lr."
        )
    return baseline
