"""How long the runs that are missing will take, from rounds that were measured in the same folder."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv import toml
from fedhv.config import Setting, load_setting, method_tables
from fedhv.errors import InputError
from fedhv.history import read_history
from fedhv.reproduce.found import Found, State

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
        seconds: For the rounds that are left; None where no such round has been measured.
        note: Why what is there cannot be gone on with.
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


def forecasts(found: Sequence[Found], families: Sequence[str], out: Path) -> list[Forecast]:
    """Calibrations and runs in the order in which they will be done."""
    known = measured(out)
    listed = []
    for under in families:
        setting = load_setting(under)
        rule = setting.calibration
        for seed in rule.seeds:
            name = f"calibration/{under}/seed{seed}"
            done = len(read_history(out / name))
            state: State = "interrupted" if done else "missing"
            seconds = _left(rule.rounds - done, known.get(work(setting, "fedhv")))
            listed.append(Forecast(name, under, "calibration", seed, state, done, rule.rounds, seconds))
    for each in found:
        setting = each.run.resolved
        rounds = setting.training.rounds
        left = 0 if each.finished else rounds - each.done
        seconds = _left(left, known.get(work(setting, each.run.method)))
        run = each.run
        where = (run.name, run.variant.setting, run.method, run.seed)
        listed.append(Forecast(*where, each.state, each.done, rounds, seconds, each.note))
    return listed


def measured(out: Path) -> dict[Work, float]:
    """Median seconds of a round for every kind of work that some run in the folder has done."""
    seconds: dict[Work, list[float]] = {}
    for folder, config in _configs(out):
        try:
            setting, method = config["setting"], config["run"]["method"]
            key = _work(setting["benchmark"], setting, method, setting["methods"][method])
            seconds.setdefault(key, []).extend(float(record["seconds"]) for record in read_history(folder))
        except (InputError, KeyError, TypeError, ValueError):
            continue  # a damaged run says nothing about time
    return {key: statistics.median(values) for key, values in seconds.items() if values}


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


def _configs(out: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for pattern in ("*/*/config.toml", "calibration/*/*/config.toml"):
        for path in sorted(out.glob(pattern)):
            try:
                yield path.parent, toml.read(path)
            except InputError:
                continue


def _left(rounds: int, seconds: float | None) -> float | None:
    if rounds <= 0:
        return 0.0
    return None if seconds is None else rounds * seconds
