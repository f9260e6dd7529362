"""Controls of the main comparison: equal learning rates, other partitions, every method alone.

    python benchmarks/controls.py run rates --data DATA --out OUT       # Uniform and FedHV with exchanged rates
    python benchmarks/controls.py run partitions --data DATA --out OUT  # five other partitions of the examples
    python benchmarks/controls.py run alone --data DATA --out OUT       # each method by itself, for its time
    python benchmarks/controls.py table OUT --own results/repetitions/ten-seeds

The runs are `fedhv compare` commands, which are printed. Repeat a command to continue after an interruption. In the
paper's settings FedHV and Uniform have different rates, so the first control runs each with the rates of the other.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import t as student

SETTINGS = ("multimnist", "mnist-fmnist", "cifar10-mnist-a", "cifar10-mnist-b")
METHODS = ("uniform", "fedhv")
PARTITIONS = (11, 12, 13, 14, 15)
"""Seeds of partitions; the paper's settings have 10."""


def main() -> None:
    """Run a control, or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("control", choices=("rates", "partitions", "alone"))
    run.add_argument("--data")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--settings", nargs="+", default=SETTINGS, choices=SETTINGS)
    run.add_argument("--seeds", default=None, help="1,…,10 for rates, 1,2 for partitions, 0 alone by default")
    run.add_argument("--rounds", help="instead of the setting's")
    run.add_argument("--device", default="cuda")
    run.add_argument("--precision", default="auto")
    table = commands.add_parser("table")
    table.add_argument("out", type=Path)
    table.add_argument("--own", type=Path, required=True, help="the study of both methods at their own rates")
    given = parser.parse_args()
    if given.command == "run":
        for arguments in _comparisons(given.control, given.settings, given.out, given.seeds):
            machine = ["--device", given.device, "--precision", given.precision, "--reference", "ours"]
            options = [("--data", given.data), ("--rounds", given.rounds)]
            chosen = [word for name, value in options if value for word in (name, value)]
            command = ["compare", *arguments, *machine, *chosen]
            print("fedhv " + shlex.join(command), flush=True)
            subprocess.run([sys.executable, "-m", "fedhv", *command], check=True)
    else:
        for line in (*_rates_table(given.out / "rates", given.own), "", *_partitions_table(given.out / "partitions")):
            print(line)


def _comparisons(control: str, settings: list[str], out: Path, seeds: str | None) -> Iterator[list[str]]:
    """The arguments of `fedhv compare` for every study of a control."""
    for setting in settings:
        folder = out / control / setting
        if control == "rates":
            exchanged = [each for pair in _exchanged(setting) for each in ("--set", pair)]
            every = seeds or ",".join(map(str, range(1, 11)))
            yield [setting, "--methods", ",".join(METHODS), "--seeds", every, "--out", str(folder), *exchanged]
        elif control == "partitions":
            for number in PARTITIONS:
                of = ["--set", f"federation.seed={number}", "--out", str(folder / str(number))]
                yield [setting, "--methods", ",".join(METHODS), "--seeds", seeds or "1,2", *of]
        else:
            for method in ("uniform", "fsmgda", "fedcmoo", "fedhv"):
                yield [setting, "--methods", method, "--seeds", seeds or "0", "--out", str(folder / method)]


def _exchanged(setting: str) -> list[str]:
    """Overrides that give each of the two methods the rates of the other."""
    from fedhv import load_setting

    methods = load_setting(setting).methods
    other = dict(zip(METHODS, reversed(METHODS), strict=True))
    return [f"methods.{m}.{rate}={methods[other[m]][rate]}" for m in METHODS for rate in ("local_lr", "server_lr")]


# --- tables ---------------------------------------------------------------------------------------------------


def _rates_table(exchanged: Path, own: Path) -> Iterator[str]:
    """FedHV minus Uniform: as in the paper, both at FedHV's rates, both at Uniform's."""
    yield "FedHV minus Uniform, points of accuracy, paired by seed, mean and 95 % interval:"
    yield "| setting | accuracy | own rates | both at FedHV's rates | both at Uniform's rates |"
    yield "|---|---|---|---|---|"
    for setting in SETTINGS:
        if not (exchanged / setting).is_dir():
            continue
        runs = {"own": _finals(own / setting), "exchanged": _finals(exchanged / setting)}
        for name in ("mean", "worst"):
            pairs = [
                _difference(runs[fedhv][("fedhv", name)], runs[uniform][("uniform", name)])
                for fedhv, uniform in (("own", "own"), ("own", "exchanged"), ("exchanged", "own"))
            ]
            yield f"| {setting} | {name} | {' | '.join(pairs)} |"


def _partitions_table(out: Path) -> Iterator[str]:
    """FedHV minus Uniform for every partition, and the mean over partitions with its interval."""
    yield "FedHV minus Uniform, points of accuracy, mean over seeds for each partition; 95 % interval over partitions:"
    yield f"| setting | accuracy | {' | '.join(map(str, PARTITIONS))} | mean |"
    yield f"|---|---|{'---|' * (len(PARTITIONS) + 1)}"
    for setting in SETTINGS:
        folders = [out / setting / str(number) for number in PARTITIONS]
        if not all(folder.is_dir() for folder in folders):
            continue
        for name in ("mean", "worst"):
            means = {}
            for number, folder in zip(PARTITIONS, folders, strict=True):
                finals = _finals(folder)
                fedhv, uniform = finals[("fedhv", name)], finals[("uniform", name)]
                means[number] = float(np.mean([fedhv[seed] - uniform[seed] for seed in fedhv]))
            each = " | ".join(f"{value:+.2f}" for value in means.values())
            yield f"| {setting} | {name} | {each} | {_difference(means, dict.fromkeys(means, 0.0))} |"


def _finals(study: Path) -> dict[tuple[str, str], dict[int, float]]:
    """By method and accuracy: the final value of every seed, in points."""
    from fedhv.report.reading import Reader

    found: dict[tuple[str, str], dict[int, float]] = {}
    runs, _ = Reader([study]).read()
    for run in runs:
        for name in ("mean", "worst"):
            last = float(run.evaluations.values(f"{name}_accuracy")[-1])
            found.setdefault((run.method.lower(), name), {})[run.seed] = last
    return found


def _difference(first: dict[int, float], second: dict[int, float]) -> str:
    """The mean difference over common seeds, with Student's interval."""
    seeds = sorted(first.keys() & second.keys())
    values = np.array([first[seed] - second[seed] for seed in seeds])
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.2f} ({values.mean() - half:+.2f} to {values.mean() + half:+.2f})"


if __name__ == "__main__":
    main()
