"""A baseline as a run of a study: a folder with the runs of its parts, and what they give together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from safetensors.torch import save as save_tensors

from fedhv.engines import Choice
from fedhv.methods import Uniform
from fedhv.problem.problem import Problem
from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.baselines.executing import execute_parts
from fedhv.runs.baselines.methods import Pooled
from fedhv.runs.baselines.parts import Part, part_job, parts, pooled
from fedhv.runs.baselines.scores import combined
from fedhv.runs.config import Setting
from fedhv.runs.folder import open_folder
from fedhv.runs.history import Following, History
from fedhv.runs.job import Job
from fedhv.runs.record import MODEL, SUMMARY, Run, read_run, read_summary
from fedhv.runs.resolve import resolve
from fedhv.runs.summary import Summary
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round
from fedhv.support.files import write_atomic
from fedhv.support.jsonfile import write_object

PARTS = "parts"
"""The folder of the runs of a baseline's parts, in the baseline's folder."""


@dataclass(frozen=True)
class BaselineRun:
    """One baseline with one seed, as it can be sent to another process.

    Its parts are run folders in `parts`, so an interrupted baseline is resumed like any run.
    """

    setting: Setting
    method: Uniform
    seed: int
    folder: Path
    choice: Choice
    data: str | None
    init: Any = None

    until: ClassVar[int | None] = None

    @property
    def label(self) -> str:
        """The label in progress."""
        return f"{self.method.label} seed {self.seed}"

    def used(self, problem: Problem) -> list[Part]:
        """Its parts."""
        return parts(self.method.label, problem, self.method)

    def config(self, problem: Problem) -> dict[str, Any]:
        """`config.toml`, as a run's; the task is a part's."""
        setting = replace(self.setting, preferences={}, baselines={})  # all weights are equal
        made = Job(setting, problem, self.method, self.seed, self.choice).config()
        made["setting"]["methods"][self.method.label].pop("task", None)
        return made

    def jobs(self, problem: Problem, pool: Problem | None = None) -> list[Job]:
        """The jobs of its parts, in a folder that is checked and made; `pool` is the pooled problem, if known."""
        open_folder(self.folder, self.config(problem), resume=True)
        place = (pool or pooled(problem)) if self.method.label == Pooled.name else problem
        return [
            part_job(part, self.setting, place, self.seed, self.choice, self.folder / PARTS)
            for part in self.used(problem)
        ]

    def waiting(self, problem: Problem, pool: Problem | None = None) -> list[Job]:
        """The jobs of its parts that have not finished; none if the baseline has."""
        jobs = self.jobs(problem, pool)
        if read_summary(self.folder) is not None:
            return []
        return [job for job in jobs if job.folder is not None and read_summary(job.folder) is None]

    def combine(self, problem: Problem) -> Summary:
        """What its finished parts give together; written as a history of one line, a summary, and a pool's model."""
        found = read_summary(self.folder)
        if found is not None:
            return found
        used = self.used(problem)
        runs: list[Run] = [read_run(self.folder / PARTS / part.name) for part in used]
        summary = combined(self.method.label, self.setting, problem, self.seed, runs, used)
        sent = summary.communication
        played = Round(
            number=summary.rounds,
            weights=summary.weights,
            downlink_bytes=sent.downlink_bytes,
            uplink_bytes=sent.uplink_bytes,
            exchanges=int(sent.total_bytes > 0),
            seconds=summary.seconds,
            evaluation=Evaluation.of(summary.tasks, self.setting.evaluation.reference),
        )
        history = History(self.folder)
        history.append(played)
        history.close()
        if self.method.label == Pooled.name:
            write_atomic(self.folder / MODEL, save_tensors(runs[0].state_dict))
        write_object(self.folder / SUMMARY, summary.as_dict())
        return summary

    def __call__(self, problem: Problem | None = None, observer: Observer | None = None) -> Summary:
        """Run or resume its parts, or read what they gave."""
        if problem is None:
            _, problem = resolve(self.setting, data=self.data, init=self.init)
        waiting = self.waiting(problem)
        if waiting:
            execute_parts(waiting, observer or Observer(), self.label)
        return self.combine(problem)


class FollowingParts:
    """The progress of a baseline that another process computes: the mean of its parts' rounds.

    Attributes:
        count: The rounds so far.
        last_evaluated: None: no part has the scores of all.
    """

    def __init__(self, run: BaselineRun, problem: Problem) -> None:
        self.count = 0
        self.last_evaluated: Round | None = None
        self._run = run
        self._parts = [Following(run.folder / PARTS / part.name) for part in run.used(problem)]

    def news(self) -> Sequence[Round]:
        """Read the parts' histories."""
        for each in self._parts:
            each.news()
        self.count = sum(each.count for each in self._parts) // len(self._parts)
        if (self._run.folder / SUMMARY).exists():
            self.count = self._run.setting.training.rounds
        return []
