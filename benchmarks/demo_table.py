"""Accuracies of the demo's study with five seeds (`benchmarks/demo_seeds.sh`), at three of its rounds.

python benchmarks/demo_table.py OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedhv.report.reading import Reader, RunData

ROUNDS = (70, 140, 210)


def main() -> None:
    """Print a row for every method; a run that diverged before a round is left out there and counted."""
    groups: dict[str, list[RunData]] = {}
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        for run in Reader([folder]).read()[0]:
            groups.setdefault(run.method if folder.name == "adaptive" else folder.name, []).append(run)
    print(f"| method | {' | '.join(f'clear, faint at round {at}' for at in ROUNDS)} |")
    print(f"|---|{'---|' * len(ROUNDS)}")
    for name, runs in groups.items():
        print(f"| {name} | {' | '.join(_cell(runs, at) for at in ROUNDS)} |")


def _cell(runs: list[RunData], at: int) -> str:
    reached = [run for run in runs if at in run.evaluations.round]
    if not reached:
        return "none"
    rows = np.array([run.evaluations.accuracy[list(run.evaluations.round).index(at)] for run in reached])
    means, deviations = rows.mean(axis=0), rows.std(axis=0, ddof=1)
    lost = f" ({len(reached)} of {len(runs)} runs)" if len(reached) < len(runs) else ""
    return ", ".join(f"{mean:.1f} ± {s:.1f}" for mean, s in zip(means, deviations, strict=True)) + lost


if __name__ == "__main__":
    main()
