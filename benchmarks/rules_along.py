"""What FedHV's reference decides, without training: the weights that other references give along recorded reports.

    python benchmarks/rules_along.py --out study
    python benchmarks/rules_along.py --out results/study

Reads FedHV's runs of every setting below OUT, in its part "rules" if there is one. For every reference it computes the
weights of each round from the reports that the run recorded: the model's path is that of the run, and only the weights
differ. It shows how far weights are from equal ones and from FedHV's own, early and late. It does not show what
training with these weights would have given: the parts "margins", "calibrations" and "fresh" of `rules_study.py` do.

The reports of the part "rules" have calibrations of other seeds in them: `fixed` trains with equal weights at FedHV's
rates, so the first rounds of its seed s are the calibration with seed s.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rules_parts import MARGINS, UNCALIBRATED, classes, reference_of

from fedhv.methods.weights import inverse_slack_weights
from fedhv.runs.config import load_setting, shipped_settings
from fedhv.runs.record import SUMMARY, Run, read_run
from fedhv.runs.reference import Reference

FLOOR = 1e-6
"""FedHV's floor of slacks, in every shipped setting."""


def reports(run: Run) -> np.ndarray:
    """The recorded reports, T × m."""
    return np.array([each.report for each in run.rounds])


def weights_along(losses: np.ndarray, reference: Sequence[float]) -> np.ndarray:
    """The weights after every report, T × m."""
    return np.asarray(inverse_slack_weights(losses, np.broadcast_to(np.array(reference), losses.shape), FLOOR))


def distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The total variation between weights, for every round: how much weight is elsewhere."""
    return np.abs(one - other).sum(axis=-1) / 2


def calibrated(folder: Path, seed: int, rounds: int, margin: float) -> list[float] | None:
    """The reference of a calibration with this seed, from the run with equal weights at FedHV's rates."""
    place = folder / f"fixed-seed{seed}"
    if not (place / SUMMARY).exists():
        return None
    return [float(value) + margin for value in reports(read_run(place))[:rounds].max(axis=0)]


def references(name: str, folder: Path, own: Reference) -> Iterator[tuple[str, list[float]]]:
    """(label, reference): other margins, no calibration, and other calibration seeds."""
    made = own.provenance
    for margin in sorted({*MARGINS, made.margin}):
        yield f"margin {margin:g}", [value + margin for value in made.maxima]
    counts = classes(load_setting(name))
    for delta in UNCALIBRATED if counts else ():
        yield f"r = log C + {delta:g}", [math.log(c) + delta for c in counts]
    for seed in range(5):
        found = calibrated(folder, seed, made.rounds, made.margin)
        if found is not None:
            yield f"calibration seed {seed}", found


def table(name: str, folder: Path) -> str:
    """One setting: how far the weights are from equal ones early and late, and from FedHV's own."""
    own = reference_of(folder)
    places = sorted(folder.glob("fedhv-seed*"))
    runs = [read_run(place) for place in places if (place / SUMMARY).exists()]
    if own is None or not runs or not own.provenance.maxima:
        return ""
    paths = [reports(run) for run in runs]
    quarter = max(1, len(paths[0]) // 4)
    lines = [f"### {name}: {len(runs)} runs of FedHV, {len(paths[0])} rounds", "",
             "| reference | r | from equal weights, first quarter | last quarter | from FedHV's | reports above r |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    mine = [weights_along(losses, own.values) for losses in paths]
    for label, reference in references(name, folder, own):
        found = [weights_along(losses, reference) for losses in paths]
        equal = [distance(w, np.full(w.shape[1], 1 / w.shape[1])) for w in found]
        early, late = (np.mean([part[piece] for part in equal]) for piece in (slice(quarter), slice(-quarter, None)))
        away = np.mean([distance(w, m) for w, m in zip(found, mine, strict=True)])
        above = sum(int((losses >= np.array(reference)).any(axis=1).sum()) for losses in paths)
        several = len(reference) > 3
        r = f"{min(reference):.3f} to {max(reference):.3f}" if several else ", ".join(f"{v:.3f}" for v in reference)
        lines.append(f"| {label} | {r} | {early:.4f} | {late:.4f} | {away:.4f} | {above} |")
    stale = [distance(w[1:], w[:-1]) for w in mine]
    early, late = (np.mean([part[piece] for part in stale]) for piece in (slice(quarter), slice(-quarter, None)))
    lines += ["", "Fresh weights, instead of those of the round before, would be "
              f"{early:.4f} away in the first quarter of the rounds and {late:.4f} in the last."]  # fmt: skip
    return "\n".join(lines) + "\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the folder of the study")
    out = Path(parser.parse_args().out)
    print("# Weights along FedHV's recorded reports\n")
    print("Distances are total variations: 0.1 between 0.5, 0.5 and 0.4, 0.6.\n")
    for name in shipped_settings():
        folders = [place for place in (out / name / "rules", out / name) if place.is_dir()]
        if folders:
            print(table(name, folders[0]), end="")


if __name__ == "__main__":
    main()
