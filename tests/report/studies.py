"""Studies written by hand: run folders with any methods, seeds, rounds and tasks, without training anything."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.support import toml

STRENGTH = {"fedhv": 1.0, "fedcmoo": 0.96, "fsmgda": 0.9, "uniform": 0.93}
DIGITS = ("clear", "faint")
REFERENCE = 2.45


def write_study(
    folder: Path,
    methods: Sequence[str] = ("fedhv", "uniform"),
    seeds: Sequence[int] = (0, 42),
    **options: Any,
) -> Path:
    """Every method with every seed; options as for `write_run`."""
    for method in methods:
        for seed in seeds:
            write_run(folder / f"{method}-seed{seed}", method=method, seed=seed, **options)
    return folder


def write_run(
    folder: Path,
    *,
    method: str = "fedhv",
    seed: int = 0,
    setting: str = "digits",
    tasks: Sequence[str] = DIGITS,
    rounds: int = 12,
    done: int | None = None,
    every: int = 4,
    finished: bool = True,
    benchmark: str = "digits",
    local_steps: int = 10,
    participants: int = 6,
    parameters: Mapping[str, Any] | None = None,
    against: float = 3.0,
    reports: Mapping[str, float] | None = None,
) -> Path:
    """One run of smooth made-up curves; `done` rounds of `rounds`, and a summary if it is `finished`.

    `against` is the evaluation reference; `reports` says how reports are protected, and is left out where they are not.
    """
    done = rounds if done is None else done
    folder.mkdir(parents=True)
    hyper = {"server_lr": 1.2, "local_lr": 0.3} | ({"report": "all", "floor": 1e-6} if method == "fedhv" else {})
    write_config(folder, method, seed, setting, benchmark, rounds, every, local_steps, participants,
                 hyper | dict(parameters or {}), against, reports)  # fmt: skip
    records = made_up(method, seed, tasks, rounds, done, every, local_steps, participants)
    write_history(folder, records)
    if method == "fedhv":
        write_reference(folder, tasks)
    if finished and done == rounds:
        write_summary(folder, method, seed, setting, records)
    return folder


def write_config(
    folder: Path, method: str, seed: int, setting: str, benchmark: str, rounds: int, every: int, local_steps: int,
    participants: int, hyper: Mapping[str, Any], against: float = 3.0, reports: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    config = {
        "run": {"method": method, "seed": seed, "fedhv": "0.1.0"} | ({"reports": dict(reports)} if reports else {}),
        "machine": {"engine": "sequential", "device": "cpu", "torch": "2.13.0"},
        "setting": {
            "name": setting,
            "benchmark": benchmark,
            "description": "made up",
            "federation": {
                "clients": 20, "participants": participants, "samples_per_client": 200, "partition": "dirichlet",
                "alpha": 0.3, "strata": "all", "seed": 10,
            },
            "training": {"rounds": rounds, "batch_size": 32, "local_steps": local_steps, "momentum": 0.0},
            "evaluation": {"every": every, "reference": against},
            "calibration": {"rounds": 10, "margin": 0.15, "seeds": [0]},
            "references": {},
            "methods": {method: dict(hyper)},
        },
    }  # fmt: skip
    (folder / "config.toml").write_text(toml.write(config), encoding="utf-8")


def write_history(folder: Path, records: Sequence[Mapping[str, Any]]) -> None:
    lines = [json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n" for record in records]
    (folder / "history.jsonl").write_text("".join(lines), encoding="utf-8")


def write_reference(folder: Path, tasks: Sequence[str]) -> None:
    tables = {
        "values": [REFERENCE] * len(tasks),
        "tasks": list(tasks),
        "provenance": {"source": "calibration", "setting": "digits", "seeds": [0], "rounds": 10, "margin": 0.15},
        "cost": {"rounds": 10, "downlink_bytes": 8_000_000, "uplink_bytes": 8_000_080, "seconds": 4.0},
    }
    (folder / "reference.toml").write_text(toml.write(tables), encoding="utf-8")


def write_summary(folder: Path, method: str, seed: int, setting: str, records: Sequence[Mapping[str, Any]]) -> None:
    last = records[-1]["evaluation"]
    summary = {"setting": setting, "method": method, "seed": seed, "rounds": len(records), **last}
    seconds = sum(r["seconds"] for r in records)
    summary |= {"weights": records[-1]["weights"], "seconds": seconds}
    summary |= {"calibration_seconds": 0.0, "total_seconds": seconds}
    down, up = (sum(r[f"{way}link_bytes"] for r in records) for way in ("down", "up"))
    summary["communication"] = {
        "downlink_bytes": down, "uplink_bytes": up, "calibration_bytes": 0, "total_bytes": down + up
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def made_up(
    method: str, seed: int, tasks: Sequence[str], rounds: int, done: int, every: int, local_steps: int,
    participants: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Records as a run writes them, from a formula and a little noise."""
    rng = np.random.default_rng([seed, zlib.crc32(method.encode()), len(tasks), local_steps, participants])
    m, strength = len(tasks), STRENGTH.get(method, 0.85)
    ease = np.linspace(1.0, 0.75, m) * (0.7 + 0.1 * math.log10(1 + local_steps * participants))
    balance = 1.0 if method == "uniform" else 1.06
    records = []
    for t in range(1, done + 1):
        progress = 1 - np.exp(-4 * t / rounds * strength * ease)
        losses = 2.3 * (1 - 0.85 * progress * strength) + 0.02 * rng.standard_normal(m)
        slack = REFERENCE - losses
        weights = (1 / slack) / (1 / slack).sum() if method != "uniform" else np.full(m, 1 / m)
        record: dict[str, Any] = {"round": t}
        if method == "fedhv":
            record |= {"report": losses.tolist(), "slack": slack.tolist(), "floored": 0}
        record |= {
            "weights": weights.tolist(),
            "downlink_bytes": 831_288 + 684_360 * (method == "fedcmoo"),
            "uplink_bytes": 831_288 + 684_360 * (method in ("fedcmoo", "fsmgda")),
            "exchanges": 3 if method == "fedcmoo" else 1,
            "seconds": round(0.4 / strength**3 * (1 + 0.05 * float(rng.random())), 6),
        }
        if t % every == 0 or t == rounds:
            accuracy = np.clip(100 * progress * strength * balance * (0.9 + 0.1 * ease) + 0.4 * rng.standard_normal(m),
                               5, 99.5)  # fmt: skip
            scores = [TaskScore(*each) for each in zip(tasks, accuracy.tolist(), losses.tolist(), strict=True)]
            record["evaluation"] = Evaluation.of(scores).as_dict()
        records.append(record)
    return records


def write_fixed(
    folder: Path,
    method: str,
    seed: int,
    accuracies: Sequence[float],
    losses: Sequence[float],
    *,
    setting: str = "digits",
    tasks: Sequence[str] = DIGITS,
    seconds: float = 0.5,
    local_steps: int = 10,
    parameters: Mapping[str, Any] | None = None,
) -> Path:
    """A finished run of two rounds whose last evaluation is exactly this."""
    folder.mkdir(parents=True)
    hyper = {"server_lr": 1.0, "local_lr": 0.3} | ({"report": "all", "floor": 1e-6} if method == "fedhv" else {})
    write_config(folder, method, seed, setting, "digits", 2, 2, local_steps, 6, hyper | dict(parameters or {}))
    scores = [TaskScore(*each) for each in zip(tasks, accuracies, losses, strict=True)]
    plain: dict[str, Any] = {"weights": [1 / len(tasks)] * len(tasks), "downlink_bytes": 1_000_000,
                             "uplink_bytes": 2_000_000, "exchanges": 1, "seconds": seconds}  # fmt: skip
    if method == "fedhv":
        plain |= {"slack": [REFERENCE - loss for loss in losses], "floored": 0}
        write_reference(folder, tasks)
    write_history(folder, [{"round": 1, **plain}, {"round": 2, **plain, "evaluation": Evaluation.of(scores).as_dict()}])
    return folder
