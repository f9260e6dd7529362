"""What `profile = "hardened"` costs where every client is honest.

    python benchmarks/reliability/hardened.py [--seeds 10]

`digits`, FedHV, 70 rounds, every rule with a calibration of its own. Each rule is compared with the standard profile
seed by seed: the mean of the differences and its 95 % interval (Student's t). The standard profile has the relative
bound on updates that is on by default over Flower; a run without that bound has to have the same bits.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

from common import RESULTS, Log, machine, table, write_csv

T_95 = {5: 2.776, 10: 2.262}
"""The 0.975 quantile of Student's t for this number of seeds."""
RULES = {
    "standard": ["server.outlier=10"],
    "hardened": ["server.profile=hardened"],
    "updates by trimmed mean 0.2": ["server.aggregate=trimmed", "server.trim=0.2"],
    "updates by median": ["server.aggregate=median"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, choices=sorted(T_95), default=10)
    seeds = range(parser.parse_args().seeds)
    from fedhv import run

    log = Log(RESULTS / "hardened.txt")
    log(machine())
    rows: list[dict[str, Any]] = []
    for rule, changes in RULES.items():
        for seed in seeds:
            result = run("digits", seed=seed, engine="sequential", device="cpu", override=changes)
            refused = result.summary.refused
            rows.append({
                "rule": rule, "seed": seed, "mean_accuracy": round(result.mean_accuracy, 3),
                "worst_accuracy": round(result.worst_accuracy, 3), "left_out": refused.replies if refused else 0,
                "largest_weight": round(max(max(played.weights) for played in result.rounds), 4),
            })  # fmt: skip
            log(str(rows[-1]))
    plain = run("digits", seed=0, engine="sequential", device="cpu", override=["server.outlier=inf"])
    same = [round(plain.mean_accuracy, 3), round(plain.worst_accuracy, 3)]
    first = [rows[0]["mean_accuracy"], rows[0]["worst_accuracy"]]
    log(f"seed 0 without the relative bound: {same}; with it: {first}")
    write_csv(RESULTS / "hardened.csv", rows)
    shown = []
    for rule in RULES:
        mine = [row for row in rows if row["rule"] == rule]
        cells: list[str] = [rule]
        for score in ("mean_accuracy", "worst_accuracy"):
            values = [row[score] for row in mine]
            base = [row[score] for row in rows if row["rule"] == "standard"]
            gaps = [a - b for a, b in zip(values, base, strict=True)]
            half = T_95[len(gaps)] * statistics.stdev(gaps) / math.sqrt(len(gaps))
            cells += [f"{statistics.mean(values):.2f}", f"{statistics.mean(gaps):+.2f} ± {half:.2f}"]
        shown.append((*cells, sum(row["left_out"] for row in mine)))
    log(table(("rule", "MeanAcc %", "difference", "WorstAcc %", "difference", "left out"), shown))
    if same != first:
        raise SystemExit("the relative bound changed an honest run")


if __name__ == "__main__":
    main()
