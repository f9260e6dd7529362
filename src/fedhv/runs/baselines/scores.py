"""The summary of a baseline from those of its parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np

from fedhv.problem.problem import Problem
from fedhv.protocol.evaluation import Evaluation, OverClients, TaskScore
from fedhv.runs.baselines.methods import Pooled, SingleTask
from fedhv.runs.baselines.parts import Part
from fedhv.runs.config import Setting
from fedhv.runs.record import Run
from fedhv.runs.selected import Selected
from fedhv.runs.summary import Summary
from fedhv.runs.summary_tables import Communication


def combined(
    name: str, setting: Setting, problem: Problem, seed: int, runs: Sequence[Run], used: Sequence[Part]
) -> Summary:
    """The summary of a baseline from those of its parts."""
    ended = [run.summary for run in runs]
    m = len(problem.tasks)
    if name == SingleTask.name:
        tasks = [each.tasks[i] for i, each in enumerate(ended)]
    else:
        tasks = [mean_score([each.tasks[i] for each in ended]) for i in range(m)]
    sent = [each.communication for each in ended] if name == SingleTask.name else []
    down, up = sum(each.downlink_bytes for each in sent), sum(each.uplink_bytes for each in sent)
    seconds = round(sum(each.seconds for each in ended), 3)
    evaluation = Evaluation.of(tasks, setting.evaluation.reference)
    selection = None
    if problem.validation is not None:
        over = _over_clients(name, [task.name for task in problem.tasks], ended, used)
        kept = [each.selection for each in ended if each.selection is not None]
        selection = Selected(setting.evaluation.keep, max(each.round for each in kept), over_clients=over)
        if name == Pooled.name:  # one model, which was chosen by its own rounds
            selection = replace(selection, stopped=kept[0].stopped, score=kept[0].score)
    return Summary(
        **{each.name: getattr(evaluation, each.name) for each in fields(Evaluation)},
        setting=setting.name,
        method=name,
        seed=seed,
        machine=ended[0].machine,
        rounds=max(each.rounds for each in ended),
        weights=(1 / m,) * m,
        rates=ended[0].rates,
        loss_units=ended[0].loss_units,
        labels=ended[0].labels,
        communication=Communication(down, up, 0, down + up),
        selection=selection,
        seconds=seconds,
        calibration_seconds=0.0,
        total_seconds=seconds,
    )


def _over_clients(
    name: str, tasks: Sequence[str], ended: Sequence[Summary], used: Sequence[Part]
) -> tuple[OverClients, ...]:
    """Every task's scores over clients, each of its own model; a pool has no clients."""
    if name == Pooled.name:
        return ()
    found = []
    for i, task in enumerate(tasks):
        entries = [
            over
            for summary, part in zip(ended, used, strict=True)
            if summary.selection is not None and (part.judged is None or i in part.judged)
            for over in summary.selection.over_clients
            if over.task == task
        ]
        if name == SingleTask.name:
            found += entries
        elif entries:
            same = [each for each in entries if each.score == entries[0].score]
            found.append(OverClients.of(task, same[0].score, same[0].better == "lower", [e.mean for e in same]))
    return tuple(found)


def mean_score(scores: Sequence[TaskScore]) -> TaskScore:
    """The mean over clients of one task; a client without a number does not count."""
    first = scores[0]
    names = list(dict.fromkeys(name for score in scores for name in score.metrics))
    return TaskScore(
        first.name,
        _mean([score.accuracy for score in scores]),
        _mean([score.loss for score in scores]),
        {name: _mean([score.metrics[name] for score in scores if name in score.metrics]) for name in names},
        tuple(dict.fromkeys(name for score in scores for name in score.lower)),
        first.scored,
    )


def _mean(values: Iterable[float]) -> float:
    found = [value for value in values if math.isfinite(value)]
    return float(np.mean(found)) if found else math.nan
