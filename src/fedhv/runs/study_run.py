"""One run of a study, as it can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.engines import Choice
from fedhv.methods import Method
from fedhv.problem.problem import Problem
from fedhv.runs.config import Setting
from fedhv.runs.job import Job
from fedhv.runs.prepare import prepare
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve
from fedhv.runs.summary import Summary
from fedhv.simulation.observer import Observer
from fedhv.support.errors import FedHVError


@dataclass(frozen=True)
class StudyRun:
    """One run of a study, as it can be sent to another process.

    `name` is the variant's, and `until` the round after which the run pauses, if it is not to be finished.
    """

    setting: Setting
    method: Method
    seed: int
    folder: Path
    reference: Reference | None
    choice: Choice
    data: str | None
    init: Any = None
    name: str = ""
    until: int | None = None

    @property
    def label(self) -> str:
        """The label in progress."""
        return f"{self.name or self.method.label} seed {self.seed}"

    def config(self, problem: Problem) -> dict[str, Any]:
        """`config.toml`; the reference is no part of it."""
        return Job(self.setting, problem, self.method, self.seed, self.choice).config()

    def job(self, problem: Problem) -> Job:
        """The job that this run is."""
        job = Job(
            self.setting, problem, self.method, self.seed, self.choice, self.folder, self.reference, name=self.name
        )
        job.open(resume=True)
        return job

    def __call__(self, problem: Problem | None = None, observer: Observer | None = None) -> Summary:
        """Run, resume, or read the run in its folder."""
        observer = observer or Observer()
        if problem is None:
            _, problem = resolve(self.setting, data=self.data, init=self.init)
        ready = prepare(self.job(problem), observer, self.data)
        run = ready if isinstance(ready, Run) else ready.execute(observer, self.until)
        return run.summary


Outcome = Summary | FedHVError
"""The summary of a run, or the error that ended it."""
