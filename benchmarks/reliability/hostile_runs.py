"""Whole runs of FedHV in which a fifth of the reports is false: 10⁹ for the second task and 0 for the first.

    python benchmarks/reliability/hostile_runs.py [--participants 10]

`digits`, seed 0, with the three aggregations and with a mean and capped weights. False clients are drawn in every
round, each client with probability 1/5, so a round may have more of them than an aggregation tolerates.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from common import RESULTS, Log, machine, write_csv

RULES = ("mean", "median", "trimmed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, default=10)
    m = parser.parse_args().participants
    from fedhv import calibrate, run

    log = Log(RESULTS / "hostile_runs.txt")
    log(machine())
    found = calibrate("digits", participants=m)
    ends: list[dict[str, Any]] = []
    lie = ["faults.false_report=0.2", "faults.claim=[0.0, 1e9]"]
    worlds = [("mean", []), *((rule, lie) for rule in RULES), ("mean", [*lie, "methods.fedhv.weight_cap=0.7"])]
    for rule, changes in worlds:
        override = [f"federation.participants={m}", f"methods.fedhv.aggregate={rule}", *changes]
        result = run("digits", override=override, engine="sequential", device="cpu", reference=found)
        used = [played.weights[1] for played in result.rounds]
        ends.append({
            "rule": rule, "false_reports": "20 %" if changes else "none", "weight_cap": 0.7 if len(changes) > 2 else "",
            "mean_accuracy": round(result.mean_accuracy, 2), "worst_accuracy": round(result.worst_accuracy, 2),
            "largest_weight_of_task_2": round(max(used), 4), "mean_weight_of_task_2": round(float(np.mean(used)), 4),
        })  # fmt: skip
        log(str(ends[-1]))
    write_csv(RESULTS / "hostile_runs.csv", ends)


if __name__ == "__main__":
    main()
