"""The memory of one process over 20,000 short rounds.

    python benchmarks/reliability/soak.py [--rounds 20000]

A run to disk of FedHV on a tiny problem, with faults, checkpoints, evaluations and a recalibration now and then.
Resident memory and open files are read after every hundredth round.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, Log, figure, machine, write_csv


def resident() -> float:
    """The resident memory of the process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=100)
    arguments = parser.parse_args()
    from problems import quadratic

    from fedhv import FedHV, run
    from fedhv.simulation.observer import Observer

    log = Log(RESULTS / "soak.txt")
    log(machine())
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()

    class Measure(Observer):
        def round(self, round: Any) -> None:
            if round.number % arguments.every == 0:
                rows.append({"round": round.number, "resident_mb": round_(resident()),
                             "open_files": len(os.listdir("/proc/self/fd")),
                             "seconds": round_(time.perf_counter() - began)})  # fmt: skip

    def round_(value: float) -> float:
        return float(f"{value:.3f}")

    with tempfile.TemporaryDirectory() as temporary:
        changes = ["training.local_steps=1", "training.batch_size=2", f"evaluation.every={arguments.every}",
                   "faults.drop_out=0.2", "faults.non_finite=0.1", "server.attempts=100"]  # fmt: skip
        method = FedHV(local_lr=0.01, watch="recalibrate", aggregate="median")
        result = run(quadratic(), method, rounds=arguments.rounds, out=Path(temporary) / "run", override=changes,
                     reference=[4.0, 4.0], engine="sequential", device="cpu", observer=Measure())  # fmt: skip
        size = sum(path.stat().st_size for path in (Path(temporary) / "run").rglob("*")) / 1e6
    write_csv(RESULTS / "soak.csv", rows)
    warm = rows[len(rows) // 20 :]  # after the first twentieth everything has been loaded and used once
    growth = warm[-1]["resident_mb"] - warm[0]["resident_mb"]
    log(f"{len(result.rounds)} rounds in {time.perf_counter() - began:.0f} s, {size:.1f} MB on disk, "
        f"{result.summary.refused.replies} replies left out")  # fmt: skip
    log(f"resident memory {warm[0]['resident_mb']:.1f} MB after round {warm[0]['round']}, "
        f"{warm[-1]['resident_mb']:.1f} MB after round {warm[-1]['round']}: {growth:+.2f} MB "
        f"({1e6 * growth / (warm[-1]['round'] - warm[0]['round']):+.0f} bytes a round)")  # fmt: skip
    log(f"open files: {rows[0]['open_files']} at first, {rows[-1]['open_files']} at last")

    def draw(axes: Any) -> None:
        axes.plot([row["round"] for row in rows], [row["resident_mb"] for row in rows], color="#4477aa", lw=1.2)
        axes.set(xlabel="round", ylabel="resident memory, MB", ylim=(0, 1.25 * max(row["resident_mb"] for row in rows)))
        axes.set_title(f"{arguments.rounds:,} rounds: {growth:+.2f} MB after the first twentieth")

    figure(RESULTS / "soak", draw)
    if growth > 5 or rows[-1]["open_files"] > rows[0]["open_files"]:
        raise SystemExit("memory or files grow")


if __name__ == "__main__":
    main()
