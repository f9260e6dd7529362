"""How long the runs that are missing will take.

Rounds that were measured in the same folder, on such a device, tell best. Where there are none, a few steps on random
images do, roughly.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.engines import Choice, choose_engine
from fedhv.paper.extrapolate import extrapolated, pace
from fedhv.paper.found import Found, State
from fedhv.paper.running import Options
from fedhv.runs.config import Setting, load_setting, method_tables, override_setting
from fedhv.runs.history import read_history
from fedhv.runs.record import CONFIG, Run, read_run
from fedhv.support import toml
from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError

Work = tuple[Any, ...]
"""What a round computes: rounds with the same work take the same time on the same machine."""


@dataclass(frozen=True)
class Forecast:
    """One run, or one calibration, and how long what is left of it will take.

    Attributes:
        name: Its folder, seen from the reproduction's.
        setting: Its setting.
        method: Its method; "calibration" for uniform-weight rounds that find a reference.
        seed: Of the run.
        state: What is there of it.
        done: Finished rounds.
        rounds: All rounds.
        seconds: For the rounds that are left, with all the workers that the command would use; None where neither a
            measurement nor an estimate can be had.
        note: Why what is there cannot be gone on with.
        rough: Whether `seconds` is extrapolated from a few steps on random images rather than measured.
    """

    name: str
    setting: str
    method: str
    seed: int
    state: State
    done: int
    rounds: int
    seconds: float | None
    note: str = ""
    rough: bool = False

    @property
    def blocks(self) -> bool:
        """Whether what is there makes the command refuse to start."""
        return bool(self.note)

    @property
    def to_do(self) -> bool:
        """Whether the command will work on it."""
        return self.state != "finished" and not self.blocks


def forecasts(found: Sequence[Found], families: Sequence[str], options: Options) -> list[Forecast]:
    """Calibrations and runs in the order in which they will be done."""
    choice = choose_engine(options.engine, options.device, options.precision)
    known, listed = measured(options.out, choice), []
    for under in families:
        setting = load_setting(under)
        rule = setting.calibration
        # Rounds of uniform weights with FedHV's reports, and one evaluation in the end.
        brief = override_setting(setting, [f"training.rounds={rule.rounds}", "evaluation.every=0"])
        for seed in rule.seeds:
            name = f"calibration/{under}/seed{seed}"
            done = len(read_history(options.out / name))
            state: State = "interrupted" if done else "missing"
            workers = usable_cores() if choice.engine == "parallel" else 1
            seconds, rough = _time_left(brief, "fedhv", done, known, choice, workers)
            listed.append(Forecast(name, under, "calibration", seed, state, done, rule.rounds, seconds, "", rough))
    studies = Counter(each.run.variant for each in found)
    left = Counter(each.run.variant for each in found if not each.finished)
    for each in found:
        run, setting = each.run, each.run.resolved
        rounds = setting.training.rounds
        workers = _workers(choice, options, studies[run.variant], left[run.variant])
        done = rounds if each.finished else each.done
        seconds, rough = None, False
        if not each.note:  # otherwise nothing will be done about it
            seconds, rough = _time_left(setting, run.method, done, known, choice, workers)
        where = (run.name, run.variant.setting, run.method, run.seed)
        listed.append(Forecast(*where, each.state, each.done, rounds, seconds, each.note, rough))
    return listed


def _time_left(
    setting: Setting, method: str, done: int, known: Mapping[Work, Measured], choice: Choice, workers: int
) -> tuple[float | None, bool]:
    """Seconds for the rounds after `done`, and whether they are a rough estimate."""
    left = setting.training.rounds - done
    if left <= 0:
        return 0.0, False
    measurement = known.get(work(setting, method))
    if measurement is not None:
        return left * measurement.seconds / (workers if measurement.alone else 1), False
    parts = pace(setting, choice)
    return (None, False) if parts is None else (extrapolated(setting, method, parts, done) / workers, True)


def _workers(choice: Choice, options: Options, runs: int, left: int) -> int:
    """How many cores a study keeps busy, whether in one run or in several at a time; as `fedhv.compare` does it."""
    if choice.engine == "stacked" or choice.device.type == "cuda":
        return 1
    cores = usable_cores()
    at_a_time = min(options.jobs or cores, runs)
    if choice.engine == "parallel" and (options.engine == "parallel" or at_a_time == 1):
        return cores
    return max(1, min(at_a_time, left, cores))


@dataclass(frozen=True)
class Measured:
    """Median seconds of a round, and whether one worker was `alone` with it, beside whom others do other runs."""

    seconds: float
    alone: bool


def measured(out: Path, choice: Choice) -> dict[Work, Measured]:
    """For every kind of work that some run in the folder has done on such a device, as precisely, with this torch.

    Folders travel: a study that a GPU began says nothing about how long a CPU will take for the rest.
    """
    here = {key: choice.machine[key] for key in ("device", "precision", "torch")}
    seconds: dict[Work, dict[bool, list[float]]] = {}
    for run in _runs(out):
        try:
            setting, machine = run.table("setting"), run.machine
            if here.items() - machine.items():
                continue
            key = _work(setting["benchmark"], setting, run.method, run.parameters)
            alone = machine["engine"] == "sequential" and machine["device"] == "cpu"
            seconds.setdefault(key, {}).setdefault(alone, []).extend(each.seconds for each in run.rounds)
        except (InputError, AttributeError, KeyError, TypeError, ValueError):
            continue  # a damaged run says nothing about time
    found = {}
    for key, kinds in seconds.items():
        alone, values = max(kinds.items(), key=lambda kind: len(kind[1]))
        if values:
            found[key] = Measured(statistics.median(values), alone)
    return found


def work(setting: Setting, method: str) -> Work:
    """What one round of a method does in a setting."""
    tables = toml.read_text(toml.write(toml.as_tables(setting)))
    return _work(setting.benchmark, tables, method, method_tables(setting.method(method)))


def _work(benchmark: str, setting: Mapping[str, Any], method: str, parameters: Mapping[str, Any]) -> Work:
    federation, training = setting["federation"], setting["training"]
    # Uniform with a report (a calibration) does what FedHV does.
    kind = "train" if method in ("fedhv", "uniform") else method
    return (
        benchmark,
        kind,
        parameters.get("report"),
        federation["participants"],
        str(federation["samples_per_client"]),
        training["batch_size"],
        training["local_steps"],
    )


def _runs(out: Path) -> Iterator[Run]:
    for pattern in ("*/*", "calibration/*/*"):
        for path in sorted(out.glob(f"{pattern}/{CONFIG}")):
            try:
                yield read_run(path.parent)
            except InputError:
                continue
