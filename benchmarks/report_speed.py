"""The time of `fedhv report` for 72 runs of 500 rounds, six settings of two and five tasks, all rounds evaluated.

    python benchmarks/report_speed.py [--rounds 500] [--jobs 2]

The runs are generated, not trained. The script measures reading, tables, figures and the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")
SEEDS = (0, 42, 2026)


def main() -> None:
    from report.studies import DIGITS, write_study

    from fedhv.report import page, read_study, tables

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        study = Path(temporary) / "study"
        for i in range(6):
            tasks = DIGITS if i < 4 else [f"T{k}" for k in range(1, 6)]
            write_study(study / str(i), METHODS, SEEDS, setting=f"setting-{i}", tasks=tasks, rounds=arguments.rounds,
                        every=1, benchmark="none")  # fmt: skip
        size = sum(path.stat().st_size for path in study.rglob("*") if path.is_file())
        print(f"{len(METHODS) * len(SEEDS) * 6} runs of {arguments.rounds} rounds, {size / 1e6:.1f} MB on disk")
        began = time.perf_counter()
        read = read_study([study])
        print(f"reading   {time.perf_counter() - began:6.2f} s")
        began = time.perf_counter()
        tables(read)
        print(f"tables    {time.perf_counter() - began:6.2f} s")
        began = time.perf_counter()
        text = page(read)
        print(f"page      {time.perf_counter() - began:6.2f} s, {len(text.encode()) / 1e6:.2f} MB")
        command = [sys.executable, "-m", "fedhv", "report", str(study), "--quiet", "--jobs", str(arguments.jobs)]
        began = time.perf_counter()
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"})
        figures = len(list((study / "report" / "figures").glob("*.pdf")))
        print(f"the whole command, {figures} figures, {arguments.jobs} processes: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
