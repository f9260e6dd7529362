"""The verdict of a diagnosis, in plain words, before the quantities of the theory."""

from __future__ import annotations

from fedhv.theory.diagnosis.diagnose import Diagnosis

NOISY = 0.25
"""Reports are called noisy if their typical error is more than this share of the smallest slack."""
LAGGING = 0.2
"""Weights are called late if their distance from those of exact losses is more than this; the largest is 2."""


def verdict(found: Diagnosis) -> list[str]:
    """Sentences: whether the reference was safe, whether the floor was used, how good reports and weights were."""
    return [_safety(found), _floor(found), *_reports(found), *_weights(found)]


def _safety(found: Diagnosis) -> str:
    broken = [model for model in found.models if not model.safe]
    if broken:
        worst = min(broken, key=lambda model: model.smallest_slack)
        task = found.run.tasks[worst.slack.index(worst.smallest_slack)]
        return (
            f"The reference was too low: after round {worst.round} the loss of task '{task}' was "
            f"{-worst.smallest_slack:.3g} above it. Calibrate again, or with a larger margin (calibration.margin)."
        )
    model = min(found.models, key=lambda model: model.smallest_slack)
    task = found.run.tasks[model.slack.index(model.smallest_slack)]
    where = "the measured model" if len(found.models) == 1 else f"all {len(found.models)} measured models"
    return (
        f"The reference was safe at {where}: every task's loss was below it. "
        f"The closest was task '{task}' after round {model.round}, {model.smallest_slack:.3g} below."
    )


def _floor(found: Diagnosis) -> str:
    floored = sum(1 for row in found.margins if row["floored"])
    if not floored:
        return f"The floor of the slacks was never used in {found.run.rounds} rounds: weights were those of the method."
    return (
        f"The floor of the slacks was used in {floored} of {found.run.rounds} rounds: some reported losses came to the "
        "reference or above it, and the floor set the weights there."
    )


def _reports(found: Diagnosis) -> list[str]:
    """The error of reported losses, beside the slack that it disturbs."""
    known = [model for model in found.models if model.report_error is not None and model.smallest_slack > 0]
    if not known:
        return []
    worst = max(known, key=lambda model: (model.report_error or 0.0) ** 0.5 / model.smallest_slack)
    error = (worst.report_error or 0.0) ** 0.5
    said = f"Reported losses were {error:.3g} off where the slack was {worst.smallest_slack:.3g} (round {worst.round})"
    if error > NOISY * worst.smallest_slack:
        return [f"{said}: reports are noisy. More participants or a larger report budget help; see the second table."]
    return [f"{said}: reports are good enough for the weights."]


def _weights(found: Diagnosis) -> list[str]:
    """How far weights were from those that exact, current losses give."""
    known = [(model.staleness, model.round) for model in found.models if model.staleness is not None and model.round]
    if not known:
        return []
    largest, round = max(known)
    late = "they lag behind the losses" if largest > LAGGING else "they follow the losses closely"
    return [f"Weights were up to {largest:.3g} from those of exact, current losses (round {round}, at most 2): {late}."]
