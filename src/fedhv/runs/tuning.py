"""Tuning: every method gets the same number of trials on validation examples, by successive halving.

A trial is a method with a learning rate of clients, a server's learning rate and a value of the rule's knob. Its values
are points of a Halton sequence, which are the same for every method and need no random state. Trials run for a part of
the rounds; the better third of each method continues from its checkpoints for three times as many rounds, until the
last rung has all rounds. The runs of a rung, of all methods and seeds, are one study, which a GPU computes stacked.
Own code instead of Optuna: a rung is a batch that has to run together and resume from checkpoints, so that a sampler
would be all that Optuna contributes, at the price of a dependency and a second store of the state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedhv.methods import Method
from fedhv.methods.knobs import KNOBS, Knob
from fedhv.protocol.evaluation import ACCURACY, Evaluation
from fedhv.runs.record import CONFIG, Run, read_run
from fedhv.simulation.record import Round
from fedhv.simulation.selection import Selection, selection_score
from fedhv.support.errors import InputError, unknown

RATES = (Knob("local_lr", 0.2, 5.0), Knob("server_lr", 0.5, 2.0))
"""The ranges of learning rates, relative to those of the setting."""
BASES = (2, 3, 5)
"""The bases of the Halton sequence: one for each tuned number."""
KEPT = 3
"""One in this many trials goes on to the next rung, which has this many times as many rounds."""


@dataclass(frozen=True)
class Trial:
    """One try of a method.

    Attributes:
        name: The folder of its runs in the tuning's folder.
        method: With the tried values.
        values: The tried hyper-parameters by name.
        rounds: How many rounds it has had.
        score: The mean over seeds on validation after these rounds, larger is better; None before, −∞ if it diverged.
    """

    name: str
    method: Method
    values: Mapping[str, float]
    rounds: int = 0
    score: float | None = None

    @property
    def rank(self) -> float:
        """The score, or −∞ where there is none or it is not defined."""
        return -math.inf if self.score is None or math.isnan(self.score) else self.score


def halton(index: int, base: int) -> float:
    """The radical inverse of `index` in `base`: a point of (0, 1) for an index from 1."""
    inverse, digit = 0.0, 1.0
    while index:
        digit /= base
        inverse += digit * (index % base)
        index //= base
    return inverse


def trials_of(method: Method, count: int, ranges: Mapping[str, tuple[float, float]]) -> list[Trial]:
    """The trials of a method. The first has the setting's values; `ranges` replace the default ranges by name."""
    knobs = [Knob(each.key, *(getattr(method, each.key) * end for end in (each.low, each.high))) for each in RATES]
    if method.label in KNOBS:
        knobs.append(KNOBS[method.label])
    knobs = [Knob(k.key, *ranges[k.key], k.least) if k.key in ranges else k for k in knobs]
    found = []
    for i in range(count):
        values = (
            {knob.key: knob.at(halton(i, base)) for knob, base in zip(knobs, BASES, strict=False)}
            if i
            else {knob.key: getattr(method, knob.key) for knob in knobs}
        )
        changes: dict[str, Any] = values
        found.append(Trial(f"{method.label}-{i}".replace(":", "-"), dataclasses.replace(method, **changes), values))
    return found


def check_ranges(
    ranges: Mapping[str, tuple[float, float]], methods: Sequence[Method]
) -> dict[str, tuple[float, float]]:
    """Ranges as a user gives them, by `KEY` or `METHOD.KEY`. Those that no method has are rejected."""
    known = {each.key: 0.0 for each in RATES}
    for method in methods:
        knob = KNOBS.get(method.label)
        known |= {f"{method.label}.{each.key}": each.least for each in (*RATES, *([knob] if knob else []))}
    return checked_ranges(ranges, known)


def checked_ranges(
    ranges: Mapping[str, tuple[float, float]], known: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Ranges whose names are known and whose ends are above the number that belongs to the name."""
    if not isinstance(ranges, Mapping):
        raise InputError(f"`ranges` should be a dict of (low, high) by name. Found {ranges!r}.")
    found = {}
    for key, ends in ranges.items():
        if key not in known:
            raise unknown("range", key, known)
        least = known[key]
        try:
            low, high = map(float, ends)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not least < low < high < math.inf:
            what = f"two numbers above {least:g}" if least else "two positive numbers"
            raise InputError(f"The range of `{key}` should be {what}, the smaller first. Found {ends}.")
        found[key] = (low, high)
    return found


def own_ranges(ranges: Mapping[str, tuple[float, float]], label: str) -> dict[str, tuple[float, float]]:
    """The ranges for a method: those of all methods, then those under `METHOD.` and its name."""
    common = {key: ends for key, ends in ranges.items() if "." not in key}
    return common | {key.rpartition(".")[2]: ends for key, ends in ranges.items() if key.startswith(f"{label}.")}


def rungs(trials: int, rounds: int, every: int, finalists: int = 1) -> list[tuple[int, int]]:
    """(trials, rounds) of every rung: a third of the trials for three times as many rounds, up to all rounds.

    The last rung, of all rounds, has at least `finalists` trials. Rungs end in a round that is evaluated.
    """
    steps = max(0, math.ceil(math.log(trials / finalists, KEPT) - 1e-9))
    found: list[tuple[int, int]] = []
    for rung in range(steps + 1):
        part = rounds / KEPT ** (steps - rung)
        length = min(rounds, max(every, every * math.ceil(part / every - 1e-9)))
        count = max(finalists, math.ceil(trials / KEPT**rung - 1e-9))
        if found and found[-1][1] == length:
            continue  # too few rounds for this number of rungs
        found.append((count, length))
    return found


@dataclass(frozen=True)
class Criterion:
    """What trials are judged by, larger is better.

    Attributes:
        name: One of the four aggregates, or "main" for the mean of the tasks' main metrics.
        sign: −1 where smaller values are better.
        metrics: The different main metrics of the tasks, for "main". Several are added as in the choice of a model
            (`selection_score`).
        first: For several metrics the evaluation in whose units all trials are judged.
    """

    name: str
    sign: float = 1.0
    metrics: tuple[str, ...] = ()
    first: Evaluation | None = None

    @property
    def mixed(self) -> bool:
        """Whether the tasks have different main metrics."""
        return len(self.metrics) > 1

    @property
    def text(self) -> str:
        """The criterion in a sentence."""
        return f"the tasks' main metrics ({', '.join(self.metrics)})" if self.metrics else self.name

    def of(self, evaluation: Evaluation) -> float:
        """The number of an evaluation."""
        if self.name != "main":
            return self.sign * float(getattr(evaluation, self.name))
        if self.mixed:
            return selection_score(evaluation, self.first or evaluation)
        return self.sign * sum(task.main.value for task in evaluation.tasks) / len(evaluation.tasks)

    def in_units_of(self, folders: Iterable[Path]) -> Criterion:
        """The same in the units of the first evaluation that any of these runs has, in their order."""
        if not self.mixed or self.first is not None:
            return self
        runs = (read_run(folder) for folder in folders if (folder / CONFIG).exists())
        return replace(
            self, first=next((each.evaluation for run in runs for each in run.rounds if each.evaluation), None)
        )


CRITERIA = ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "main")


def criterion(name: str | None, tasks: Sequence[Any]) -> Criterion:
    """The criterion of this name; by default the tasks' main metrics, MeanAcc where no task has one."""
    mains = [task.metrics[0] if task.metrics else None for task in tasks]
    if name is None:
        name = "main" if any(mains) else "mean_accuracy"
    if name not in CRITERIA:
        raise InputError(f"`by` should be one of {', '.join(CRITERIA)}. Found '{name}'.")
    if name != "main":
        return Criterion(name, -1.0 if name == "mean_loss" else 1.0)
    metrics = tuple(dict.fromkeys(ACCURACY if main is None else main.name for main in mains))
    smaller = len(metrics) == 1 and mains[0] is not None and mains[0].better == "lower"
    return Criterion(name, -1.0 if smaller else 1.0, metrics)


def score(folders: Sequence[Path], rounds: int, by: Criterion) -> float:
    """The mean over runs of the model that each keeps up to a round; −∞ if a run did not get so far.

    A run that has ended before, by `evaluation.patience` or by an observer, did get so far.
    """
    found = []
    for folder in folders:
        run = read_run(folder)
        played = [each for each in run.rounds if each.number <= rounds]
        kept = _kept(run, played)
        if kept is None or (played[-1].number < rounds and run.ended is None):
            return -math.inf
        found.append(by.of(kept))
    return sum(found) / len(found)


def _kept(run: Run, played: Sequence[Round]) -> Evaluation | None:
    """The evaluation of the model that a run keeps after these rounds; None before the first evaluation."""
    evaluated = [each for each in played if each.evaluation is not None]
    if not evaluated:
        return None
    if run.table("setting", "evaluation").get("keep") != "best":
        return evaluated[-1].evaluation
    selection = Selection()
    for each in evaluated:
        selection = selection.after(each)
    return next((each.evaluation for each in evaluated if each.number == selection.round), None)


def best(trials: Sequence[Trial], count: int) -> list[Trial]:
    """The best trials, the earlier one of equals first."""
    order = sorted(range(len(trials)), key=lambda i: (-trials[i].rank, i))
    return [trials[i] for i in order[:count]]
