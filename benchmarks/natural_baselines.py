"""Baselines of a benchmark with natural clients, and the table of results/natural.

python benchmarks/natural_baselines.py choose star single-task 0.01 0.03 --data DIR    # on validation examples, seed 0
python benchmarks/natural_baselines.py table star --out results/natural/star
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from fedhv.runs.baselines import run_baseline
from fedhv.support.errors import Diverged

SEEDS = (0, 42, 2026)
BASELINES = ("single-task", "local", "pooled")
METHODS = ("fedhv", "uniform", "fsmgda", "fedcmoo")


MAIN = {"star": "r2", "tox21": "roc_auc"}
"""The metric that rates are chosen by."""


def choose(setting: str, baseline: str, rates: list[float], data: str | None) -> None:
    """Print the mean main metric on the validation examples, seed 0, for every rate."""
    torch.set_num_threads(1)
    for rate in rates:
        changes = [f"baselines.{baseline}.local_lr={rate}", f"benchmark=fedhv.benchmarks.{setting}:load_validation"]
        try:
            found = run_baseline(baseline, setting, seed=0, data=data, override=changes)
        except Diverged as error:
            print(f"{setting} {baseline} local_lr {rate}: diverged ({error})", flush=True)
            continue
        mean = np.mean([task.metrics[MAIN[setting]] for task in found.tasks])
        print(f"{setting} {baseline} local_lr {rate}: mean {MAIN[setting]} {mean:.4f}", flush=True)


def table(out: Path) -> str:
    """For every metric a Markdown table: a row for every task, mean ± sample standard deviation over seeds."""
    places = {name: [out / f"{name}-seed{seed}/summary.json" for seed in SEEDS] for name in METHODS}
    for name in BASELINES:  # run folders of `fedhv compare --baselines`, or files of an earlier version
        folders, files = out / f"{name}-seed{SEEDS[0]}", out / "baselines"
        if folders.exists():
            places[name] = [out / f"{name}-seed{seed}/summary.json" for seed in SEEDS]
        else:
            places[name] = [files / f"{name}-seed{seed}.json" for seed in SEEDS]
    places = {name: paths for name, paths in places.items() if all(path.exists() for path in paths)}
    found = {name: [json.loads(path.read_text())["tasks"] for path in paths] for name, paths in places.items()}
    tasks = [task["name"] for task in found["fedhv"][0]]
    lines = []
    for metric in found["fedhv"][0][0]["metrics"]:
        lines += ["", f"| {metric} | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
        values = {n: np.array([[task["metrics"][metric] for task in run] for run in runs]) for n, runs in found.items()}
        digits = 1 if metric == "rmse" else 3
        for i, task in enumerate([*tasks, "mean", "worst"]):
            cells = []
            for each in values.values():
                worst = each.max(axis=1) if metric == "rmse" else each.min(axis=1)
                row = each[:, i] if i < len(tasks) else each.mean(axis=1) if task == "mean" else worst
                cells.append(f"{row.mean():.{digits}f} ± {row.std(ddof=1):.{digits}f}")
            lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("choose", "table"))
    parser.add_argument("setting")
    parser.add_argument("baseline", nargs="?", choices=BASELINES, help="for `choose`")
    parser.add_argument("rates", nargs="*", type=float, help="for `choose`")
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "choose":
        choose(given.setting, given.baseline, given.rates, given.data)
    else:
        print(table(given.out))
