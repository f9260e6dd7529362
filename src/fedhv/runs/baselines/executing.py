"""The execution of a baseline's parts, a few in step at a time."""

from __future__ import annotations

from collections.abc import Sequence

from fedhv.runs.execution import Execution
from fedhv.runs.job import Job
from fedhv.runs.record import Run
from fedhv.runs.together import execute_together
from fedhv.simulation.observer import Forwarding, Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support.errors import FedHVError

AT_A_TIME = 16
"""The largest number of parts that are computed in step on a CPU: each has a model of its own."""


def execute_parts(jobs: Sequence[Job], observer: Observer, label: str = "") -> list[Run]:
    """The runs of some jobs on one problem, a few in step at a time; a part that fails ends the baseline."""
    runs: list[Run] = []

    def tick(executions: Sequence[Execution]) -> None:
        done = sum(run.summary.rounds for run in runs) + sum(each.done for each in executions)
        rounds = jobs[0].plan.rounds
        over = all(each.ended for each in executions) and len(runs) + len(executions) == len(jobs)
        observer.runs([Progress(label, rounds if over else min(done // len(jobs), rounds - 1), rounds, None)])

    for start in range(0, len(jobs), AT_A_TIME):
        group = jobs[start : start + AT_A_TIME]
        # A single job would tell the observer of its own rounds.
        for outcome in execute_together(group, tick, observer if len(jobs) == 1 else Silent(observer)):
            if isinstance(outcome, FedHVError):
                raise outcome
            runs.append(outcome)
    return runs


class Silent(Forwarding):
    """Forwards messages only: the progress of a part is not that of its baseline."""

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Not forwarded."""

    def round(self, round: Round) -> None:
        """Not forwarded."""

    def stop(self) -> None:
        """Not forwarded."""
