"""The accuracy on the embedded benchmark if 30 % of the clients fail in every round and 10 % send NaN.

    python benchmarks/reliability/failing.py

The setting `digits`, three seeds: without faults, and with 10 % drop-outs, 10 % late answers, 10 % crashes and 10 %
updates that are not finite, drawn in every round (calibration included). The runs with faults have the setting's M = 5,
of which three reply on average, or M = 8, of which five reply on average.
"""

from __future__ import annotations

import argparse
from typing import Any

from common import RESULTS, Log, figure, machine, table, write_csv

FAULTS = ["faults.drop_out=0.1", "faults.late=0.1", "faults.crash=0.1", "faults.non_finite=0.1"]
WORLDS = {
    "no faults, 5 asked": [],
    "faults, 5 asked": FAULTS,
    "faults, 8 asked": [*FAULTS, "federation.participants=8"],
}
SEEDS = (0, 42, 2026)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="fedhv")
    arguments = parser.parse_args()
    from fedhv import run

    log = Log(RESULTS / "failing.txt")
    log(machine())
    rows: list[dict[str, Any]] = []
    curves: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for method in arguments.methods.split(","):
        for world, changes in WORLDS.items():
            for seed in SEEDS:
                result = run("digits", method, seed=seed, engine="sequential", device="cpu", override=changes)
                refused, sent = result.summary.refused, result.summary.communication
                rows.append({
                    "method": method, "world": world, "seed": seed, "mean_accuracy": round(result.mean_accuracy, 3),
                    "worst_accuracy": round(result.worst_accuracy, 3), "left_out": refused.replies if refused else 0,
                    "rounds_repeated": refused.repeated_rounds if refused else 0,
                    "downlink_bytes": sent.downlink_bytes, "uplink_bytes": sent.uplink_bytes,
                })  # fmt: skip
                log(str(rows[-1]))
                curves[method, world, seed] = [
                    (played.number, played.evaluation.mean_accuracy) for played in result.evaluations
                ]
    write_csv(RESULTS / "failing.csv", rows)
    means = {}
    for method in arguments.methods.split(","):
        for world in dict.fromkeys(row["world"] for row in rows):
            mine = [row["mean_accuracy"] for row in rows if row["method"] == method and row["world"] == world]
            means[method, world] = sum(mine) / len(mine)
    log(table(("method", "world", "MeanAcc % over seeds"), [(*key, f"{value:.2f}") for key, value in means.items()]))
    method = arguments.methods.split(",")[0]
    plain, few, enough = (means[method, world] for world in WORLDS)
    log(f"{method}: {plain - few:.2f} points below the fault-free mean accuracy with 5 clients asked")
    log(f"{method}: {plain - enough:.2f} points below it with 8 asked")

    def draw(axes: Any) -> None:
        for world, colour in zip(WORLDS, ("#4477aa", "#ccbb44", "#ee6677"), strict=True):
            for i, seed in enumerate(SEEDS):
                rounds, accuracy = zip(*curves[method, world, seed], strict=True)
                axes.plot(rounds, accuracy, color=colour, lw=1.3, alpha=0.9, label=world if i == 0 else None)
        axes.set(xlabel="round", ylabel="mean accuracy, %")
        axes.set_title(f"{method} on digits, 30 % failing and 10 % NaN, seeds {', '.join(map(str, SEEDS))}")
        axes.legend(frameon=False, loc="lower right")

    figure(RESULTS / "failing", draw)
    if abs(plain - enough) > 2:
        raise SystemExit("more than two points")


if __name__ == "__main__":
    main()
