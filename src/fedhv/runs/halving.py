"""Successive halving: the trials of several methods, rung by rung, each rung one study of all their runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedhv.methods import Method
from fedhv.problem.problem import Problem
from fedhv.runs.config import Setting
from fedhv.runs.record import Run
from fedhv.runs.study import without_diverged
from fedhv.runs.tuning import Criterion, Trial, best, own_ranges, rungs, score, trials_of
from fedhv.runs.variants import Variant, check_includes
from fedhv.simulation.observer import Observer
from fedhv.support import toml
from fedhv.support.errors import FedHVError
from fedhv.support.files import write_atomic
from fedhv.support.jsonfile import Fields, read_object, write_object

TUNED, TRIALS = "tuned.toml", "tune.json"
"""The setting with the values found, and every trial, in a tuning's folder."""

RunStudy = Callable[..., list[Run]]
"""`run_study` with all arguments but the methods, `until` and the observer."""


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning.

    Attributes:
        setting: The setting with the values found for the tuned methods.
        trials: Every trial with its last score, the methods in their order.
        rungs: (trials of each method, rounds) of every rung.
        seeds: The seeds of every trial.
        by: What trials were judged by.
        share: The share of each client's examples that was held out for validation.
        folder: Where the runs, `tuned.toml` and `tune.json` are; None if they were not kept.
    """

    setting: Setting
    trials: tuple[Trial, ...]
    rungs: tuple[tuple[int, int], ...]
    seeds: tuple[int, ...]
    by: Criterion
    share: float
    folder: Path | None = None

    def best(self, method: str) -> Trial:
        """The best of a method's trials among those with all rounds."""
        mine = [trial for trial in self.trials if trial.method.label == method]
        last = max(trial.rounds for trial in mine)
        return best([trial for trial in mine if trial.rounds == last], 1)[0]

    @property
    def methods(self) -> list[str]:
        """The labels of the tuned methods."""
        return list(dict.fromkeys(trial.method.label for trial in self.trials))

    @property
    def how(self) -> str:
        """How the values were chosen, in one sentence."""
        ladder = ", ".join(f"{count} × {rounds} rounds" for count, rounds in self.rungs)
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        return (
            f"Chosen by {self.by.text} on {self.share:.0%} of each client's training examples, held out, {seeds}, "
            f"successive halving with the same trials for every method: {ladder}."
        )

    def as_dict(self) -> dict[str, Any]:
        """As `tune.json` has it."""
        return {
            "setting": self.setting.name,
            "how": self.how,
            "by": self.by.name,
            "validation": self.share,
            "seeds": list(self.seeds),
            "rungs": [{"trials": count, "rounds": rounds} for count, rounds in self.rungs],
            "trials": [
                {
                    "method": trial.method.label,
                    "name": trial.name,
                    "values": dict(trial.values),
                    "rounds": trial.rounds,
                    "score": _written(trial.score, self.by),
                    "chosen": trial.name == self.best(trial.method.label).name,
                }
                for trial in self.trials
            ],
        }

    def write(self, folder: Path) -> None:
        """Write `tuned.toml` and `tune.json`."""
        write_atomic(folder / TUNED, f"# {self.how}\n{toml.write(toml.as_tables(self.setting))}")
        write_object(folder / TRIALS, self.as_dict())


def _written(value: float | None, by: Criterion) -> float | None:
    """A score with the sign of its metric; null for a trial that diverged."""
    return None if value is None or value == -float("inf") else by.sign * value


def halve(
    setting: Setting,
    problem: Problem,
    methods: Sequence[Method],
    seeds: Sequence[int],
    folder: Path,
    run_study: RunStudy,
    *,
    trials: int,
    finalists: int,
    by: Criterion,
    share: float,
    ranges: Mapping[str, tuple[float, float]],
    original: Setting,
    observer: Observer,
) -> Tuned:
    """Tune methods. `setting` and `problem` evaluate on validation; `original` is the setting for the result."""
    everything = [trials_of(method, trials, own_ranges(ranges, method.label)) for method in methods]
    names = {trial.name for own in everything for trial in own}
    check_includes(folder / TRIALS, _trial_names, names, "Tune these methods too, with at least as many trials")
    last = setting.training.rounds
    ladder = rungs(trials, last, setting.evaluation.every or last, finalists)  # rungs end in evaluated rounds
    tried = {trial.name: trial for own in everything for trial in own}
    left = everything
    for rung, (count, rounds) in enumerate(ladder):
        left = [best(own, count) for own in left]
        observer.message(
            f"Rung {rung + 1} of {len(ladder)}: {count} trial{'s' if count > 1 else ''} for each of {len(methods)} "
            f"methods, {rounds} rounds."
        )
        variants = [Variant(trial.name, trial.method) for own in left for trial in own]
        study = partial(
            run_study, setting, problem, variants, seeds, folder, until=rounds, usual=methods, observer=observer
        )
        without_diverged(study)  # a trial that diverges has the lowest score
        by = by.in_units_of(place for own in left for trial in own for place in _places(trial, folder, seeds))
        left = [[_judged(trial, folder, seeds, rounds, by) for trial in own] for own in left]
        tried |= {trial.name: trial for own in left for trial in own}
    for own in left:
        _check_scored(own, by)
    tables = {name: dict(values) for name, values in original.methods.items()}
    for own in left:
        chosen = best(own, 1)[0]
        label = chosen.method.label
        tables[label] = tables.get(label, {}) | dict(chosen.values)
    result = replace(original, methods=tables)
    found = Tuned(result, tuple(tried.values()), tuple(ladder), tuple(seeds), by, share, folder)
    found.write(folder)
    return found


def _check_scored(trials: Sequence[Trial], by: Criterion) -> None:
    """Raise an error if no trial of a method has a score, so that none is better than another."""
    if any(trial.rank > -math.inf for trial in trials):
        return
    method = trials[0].method
    if any(trial.score != trial.rank for trial in trials):
        raise FedHVError(
            f"No trial of method '{method.label}' has a score: {by.text} is not defined on the held-out examples. "
            "Hold out more, or judge by another criterion (--by mean_loss)."
        )
    stopped = " or were stopped by `watch`" if getattr(method, "watch", "") == "stop" else ""
    raise FedHVError(
        f"All trials of method '{method.label}' diverged{stopped}. Give smaller rates with --range local_lr=LOW:HIGH."
    )


def _trial_names(path: Path) -> list[str]:
    """The names of the trials in the file of a tuning."""
    return [each.text("name") for each in Fields(read_object(path)).objects("trials")]


def _judged(trial: Trial, folder: Path, seeds: Sequence[int], rounds: int, by: Criterion) -> Trial:
    return replace(trial, rounds=rounds, score=score(_places(trial, folder, seeds), rounds, by))


def _places(trial: Trial, folder: Path, seeds: Sequence[int]) -> list[Path]:
    return [Variant(trial.name, trial.method).place(folder, seed) for seed in seeds]
