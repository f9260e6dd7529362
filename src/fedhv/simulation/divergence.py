"""When a run has diverged, and what to say of it: the round, the task, what to try."""

from __future__ import annotations

import math

from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.support.errors import Diverged, diverged


def worst_task(evaluation: Evaluation) -> TaskScore:
    """The task with the largest test loss; one that is not finite is larger than any."""
    return max(evaluation.tasks, key=lambda task: task.loss if math.isfinite(task.loss) else math.inf)


def exploded(loss: float, first: float, factor: float) -> bool:
    """Whether a loss is more than so many times what it was at first.

    Losses may be negative, such as likelihoods of densities: the factor is one of their size, above where they began.
    """
    return not loss <= first + (factor - 1) * (abs(first) or 1.0)


def check_explosion(evaluation: Evaluation, baseline: float | None, factor: float, number: int) -> float:
    """Raise where a test loss has run away; returns what later ones are compared with.

    Args:
        evaluation: Of the model after a round.
        baseline: The largest test loss of the first evaluation; None where this is it.
        factor: A loss may be so many times as large.
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
