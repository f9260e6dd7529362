"""`fedhv diagnose`: the theory applied to a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.problem.problem import Problem
from fedhv.protocol.client import Client
from fedhv.runs.threads import one_thread
from fedhv.support.errors import InputError
from fedhv.theory.diagnosis.findings import Alternative, ModelFinding, alternatives, examine, margin_rows
from fedhv.theory.diagnosis.measuring import Examiner, PopulationLosses
from fedhv.theory.diagnosis.reading import SOURCES, FedHVRun, read_fedhv_run, stored_models
from fedhv.theory.diagnosis.replay import engine_of, replay


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a run.

    Attributes:
        run: The run.
        models: The measured models, in the order of rounds.
        margins: One row for every round of the history.
        alternatives: The report-error bound for other cohorts and budgets, at the model where it is largest.
        worst: The round of that model.
        notes: Missing data, and the origin of the models.
    """

    run: FedHVRun
    models: tuple[ModelFinding, ...]
    margins: tuple[dict[str, Any], ...]
    alternatives: tuple[Alternative, ...]
    worst: int
    notes: tuple[str, ...]

    @property
    def mean_report_error(self) -> tuple[float | None, float | None]:
        """The report error and its bound, means over the measured rounds that have a report.

        One round's error may exceed the bound on its expectation; over many rounds the mean does not.
        """
        both = [(m.report_error, m.report_error_bound_orthogonal) for m in self.models if m.report_error is not None]
        if not both:
            return None, None
        return float(np.mean([error for error, _ in both])), float(np.mean([bound for _, bound in both]))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        run = self.run
        return {
            "setting": run.setting.name,
            "method": run.record.method,
            "seed": run.record.seed,
            "rounds": run.rounds,
            "planned_rounds": run.setting.training.rounds,
            "tasks": list(run.tasks),
            "reference": list(run.reference),
            "floor": run.floor,
            "clients": len(run.problem.clients),
            "participants": run.setting.federation.participants,
            "report": run.report,
            "smallest_estimated_slack": min(row["smallest_estimated_slack"] for row in self.margins),
            "smallest_true_slack": min(model.smallest_slack for model in self.models),
            "floored_rounds": sum(1 for row in self.margins if row["floored"]),
            "mean_report_error": self.mean_report_error[0],
            "mean_report_error_bound": self.mean_report_error[1],
            "models": [dataclasses.asdict(model) for model in self.models],
            "alternatives": [dataclasses.asdict(each) for each in self.alternatives],
            "alternatives_at_round": self.worst,
            "notes": list(self.notes),
        }

    def model_rows(self) -> list[dict[str, Any]]:
        """One row per measured model, with one column per task."""
        rows = []
        for model in self.models:
            row: dict[str, Any] = {}
            for name, value in dataclasses.asdict(model).items():
                if isinstance(value, tuple):
                    row |= {f"{name}: {task}": each for task, each in zip(self.run.tasks, value, strict=True)}
                else:
                    row[name] = value
            rows.append(row)
        return rows


def diagnose(
    folder: str | Path,
    *,
    checkpoints: Sequence[str] = SOURCES,
    replayed: bool = False,
    every: int | None = None,
    data: str | None = None,
    device: str = "auto",
    problem: Problem | None = None,
    init: Any = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Diagnosis:
    """Apply the theory to a FedHV run, finished or not.

    Without a replay, only the models in the folder are measured: the start, and the newest two checkpoints. A replay
    computes the run again, which costs as much as the run. It is compared with the history in every round and measured
    at regular intervals.

    Args:
        folder: The run's folder.
        checkpoints: The stored models to measure: "start", "previous", "newest".
        replayed: Whether to replay the run.
        every: With a replay, the number of rounds between measurements. About twenty models by default.
        data: The folder of the datasets.
        device: "auto", "cpu" or "cuda".
        problem: The run's problem, if it is your own, as `fedhv.run` received it.
        init: The initial model that the run was given, if it was.
        progress: Called with (rounds done, total) in a replay, (models done, total) otherwise.
    """
    if every is not None and (every < 1 or not replayed):
        raise InputError(
            f"Parameter `every` should be a whole number from 1, together with a replay. Found `every = {every}`"
            f"{'' if replayed else ' without a replay'}."
        )
    run = read_fedhv_run(Path(folder), data=data, problem=problem, init=init)
    with one_thread():
        measure = _replayed if replayed else _stored
        models, populations, notes = measure(run, tuple(checkpoints), every, device, progress)
    if not models:
        raise InputError(f"{run.folder} has no model to measure: {' '.join(notes)}")
    worst = max(models, key=lambda model: model.report_error_bound_orthogonal)
    return Diagnosis(
        run=run,
        models=tuple(models),
        margins=tuple(margin_rows(run, models)),
        alternatives=tuple(alternatives(run, populations[worst.round])),
        worst=worst.round,
        notes=(*run.notes, *notes),
    )


Findings = tuple[list[ModelFinding], dict[int, PopulationLosses], list[str]]


def _stored(
    run: FedHVRun, names: tuple[str, ...], every: int | None, device: str, progress: Callable[[int, int], None]
) -> Findings:
    choice, _ = engine_of(run, device)
    client = Client(run.problem, choice.device)
    found, notes = stored_models(run, client.layout, names)
    look = Examiner(client)
    models: list[ModelFinding] = []
    populations: dict[int, PopulationLosses] = {}
    for i, (source, checkpoint) in enumerate(found):
        t, theta = checkpoint.round, checkpoint.state.model.to(choice.device)
        populations[t] = look.population(theta)
        before = populations[t - 1].losses if t - 1 in populations else None
        used = run.used_weights(t)
        weights = checkpoint.state.weights.double().numpy() if used is None else used
        known = None if np.isnan(weights).any() else weights
        models.append(examine(run, t, source, populations[t], look.task_gradients(theta), known, before))
        progress(i + 1, len(found))
    return models, populations, notes


def _replayed(
    run: FedHVRun, names: tuple[str, ...], every: int | None, device: str, progress: Callable[[int, int], None]
) -> Findings:
    choice, notes = engine_of(run, device)
    every = every or max(1, run.rounds // 20)
    models: list[ModelFinding] = []
    populations: dict[int, PopulationLosses] = {}
    differs, before = 0.0, None
    with choice.make(run.problem) as engine:
        look = Examiner(engine.client)
        for t, state, so_far in replay(run, engine):
            differs = so_far
            progress(t, run.rounds)
            chosen = t % every == 0 or t == run.rounds
            next_chosen = (t + 1) % every == 0 or t + 1 == run.rounds
            losses: np.ndarray | None = None
            if chosen or next_chosen:
                population = look.population(state.model)
                losses = population.losses
            if chosen:
                populations[t] = population
                weights = state.weights.double().cpu().numpy()
                gradients = look.task_gradients(state.model)
                models.append(examine(run, t, "replay", population, gradients, weights, before))
            before = losses
    exactly = "exactly" if differs == 0 else f"to {differs:.1g} (relative)"
    notes.append(f"The replay gave the reports and weights of all {run.rounds} rounds {exactly}.")
    return models, populations, notes
