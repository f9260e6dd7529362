"""One baseline by itself, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from fedhv.engines import choose_engine
from fedhv.problem.problem import Problem
from fedhv.protocol.evaluation import TaskScore
from fedhv.runs.baselines.executing import execute_parts
from fedhv.runs.baselines.methods import Pooled, baseline_method, check_baselines
from fedhv.runs.baselines.parts import part_job, parts, pooled
from fedhv.runs.baselines.scores import combined
from fedhv.runs.config import Setting
from fedhv.runs.resolve import resolve
from fedhv.simulation.observer import Observer
from fedhv.support.numbers import as_seed


@dataclass(frozen=True)
class Baseline:
    """The results of a baseline.

    Attributes:
        name: One of `BASELINES`.
        seed: The seed of all random draws.
        tasks: Every task on the test examples; of "local" the means over clients.
        runs: How many models were trained.
        rates: The learning rates.
    """

    name: str
    seed: int
    tasks: tuple[TaskScore, ...]
    runs: int
    rates: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        tasks = [task.as_dict() for task in self.tasks]
        return {"baseline": self.name, "seed": self.seed, "runs": self.runs, **asdict(self)["rates"], "tasks": tasks}


def run_baseline(
    name: str,
    what: str | Setting | Problem,
    *,
    seed: int = 0,
    rounds: int | None = None,
    engine: str = "sequential",
    device: str = "cpu",
    override: Iterable[str] = (),
    data: str | None = None,
    observer: Observer | None = None,
) -> Baseline:
    """One baseline of a setting, or of a problem of your own, in memory; `fedhv.compare` keeps them in a folder.

    Args:
        name: "single-task", "local" or "pooled".
        what: As in `run`.
        seed: The seed of all random draws.
        rounds: T instead of the setting's.
        engine: Where single runs are computed; most have one client.
        device: "cpu" or "cuda".
        override: `section.key=value` changes of the setting, such as `baselines.local.local_lr=0.03`.
        data: The folder of the datasets.
        observer: Receives progress.

    Examples:
        >>> run_baseline("pooled", "digits").tasks[0].accuracy
    """
    check_baselines([name])
    setting, problem = resolve(what, override, rounds, data)
    seed = as_seed(seed)
    method = baseline_method(name, setting, len(problem.tasks))
    used = parts(name, problem, method)
    place = pooled(problem) if name == Pooled.name else problem
    choice = choose_engine(engine, device, "auto", place, setting.plan(method, seed))
    jobs = [part_job(part, setting, place, seed, choice) for part in used]
    runs = execute_parts(jobs, observer or Observer())
    found = combined(name, setting, problem, seed, runs, used)
    return Baseline(name, seed, found.tasks, len(used), {"server_lr": method.server_lr, "local_lr": method.local_lr})
