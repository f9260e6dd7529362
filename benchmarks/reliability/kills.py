"""Runs killed by SIGKILL at random moments and resumed, compared bit for bit with uninterrupted runs.

    python benchmarks/reliability/kills.py [--runs 100]

Every engine has `runs` runs of the four methods. Each run is killed at a random moment, resumed, killed again with
probability one half, and so on until it ends. Its final model, checkpoint, history and summary (without times) are then
compared with those of an uninterrupted run. A checkpoint is written after every round, so that kills also occur while
files are written.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import COLOURS, RESULTS, Log, figure, machine, table, write_csv

ENGINES = ("sequential", "parallel", "stacked")
METHODS = ("fedhv", "uniform", "fsmgda", "fedcmoo")
CHANGES = ["training.rounds=12", "calibration.rounds=4", "evaluation.every=3", "training.local_steps=2"]


def child(setting: Path, method: str, engine: str, folder: Path) -> int:
    """`fedhv run --resume` in a separate process, forked so that torch need not be imported again."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        import fedhv.runs.saving
        from fedhv import run

        os.setsid()
        fedhv.runs.saving.SECONDS_BETWEEN_CHECKPOINTS, fedhv.runs.saving.SHARE_OF_CHECKPOINTS = 0.0, float("inf")
        run(str(setting), method, seed=1, out=folder, engine=engine, device="cpu", resume=True, override=CHANGES)
        code = 0
    except BaseException as error:
        print(f"{engine} {method}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def waited(process: int, seconds: float) -> int | None:
    """The status of a child that ended within a time, or None."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    return None


def progress(folder: Path) -> tuple[str, int]:
    """The phase of a killed run, and the number of rounds in its history."""
    for name, place in (("rounds", folder), ("calibration", folder / "calibration" / "seed0")):
        path = place / "history.jsonl"
        if path.exists():
            return name, path.read_bytes().count(b"\n")
    return "start", 0


def killed_run(setting: Path, method: str, engine: str, folder: Path, life: float, rng: random.Random) -> list[Any]:
    """Kill, resume, kill …, until the run ends; returns (moment, phase, rounds) of every kill."""
    kills = []
    again = True
    while True:
        process = child(setting, method, engine, folder)
        moment = rng.uniform(0, life)
        status = waited(process, moment) if again else None
        if status is None and again:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            kills.append((moment, *progress(folder)))
            again = rng.random() < 0.5
            continue
        if status is None:
            status = waited(process, 120)
        if status != 0:
            raise SystemExit(f"{engine} {method} in {folder} ended with status {status}")
        if kills:
            return kills
        shutil.rmtree(folder)  # it ended before its first kill: repeat it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    import torch
    from problems import SETTING
    from runs_on_disk import contents

    from fedhv import run

    torch.set_num_threads(1)
    log, rng = Log(RESULTS / "kills.txt"), random.Random(arguments.seed)
    log(machine())
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        setting = place / "small.toml"
        setting.write_text(SETTING)
        for engine in ENGINES:
            # Import torch's lazy modules before the fork, so that they do not dominate the time of every child.
            run(str(setting), "uniform", engine=engine, device="cpu", rounds=1)
            whole, lives = {}, {}
            for method in METHODS:
                folder = place / f"{engine}-{method}"
                began = time.monotonic()
                status = waited(child(setting, method, engine, folder), 120)
                if status != 0:
                    raise SystemExit(f"{engine} {method} ended with status {status}")
                lives[method], whole[method] = time.monotonic() - began, contents(folder)
            for i in range(arguments.runs):
                method, folder = METHODS[i % len(METHODS)], place / "run"
                kills = killed_run(setting, method, engine, folder, lives[method], rng)
                same = contents(folder) == whole[method]
                rounds = [record["round"] for record in contents(folder)["history"]]
                rows += [
                    {"engine": engine, "method": method, "run": i, "kill": n + 1, "second": round(moment, 4),
                     "phase": phase, "rounds_written": done, "identical": same,
                     "rounds_once": rounds == list(range(1, 13))}
                    for n, (moment, phase, done) in enumerate(kills)
                ]  # fmt: skip
                shutil.rmtree(folder)
            mine = [row for row in rows if row["engine"] == engine]
            log(f"{engine}: {arguments.runs} runs, {len(mine)} kills, "
                f"{len({row['run'] for row in mine if row['identical']})} identical")  # fmt: skip
    write_csv(RESULTS / "kills.csv", rows)
    phases = ("start", "calibration", "rounds")
    log(table(("engine", "kills", *phases, "identical runs"), [
        (engine, sum(row["engine"] == engine for row in rows),
         *[sum(row["engine"] == engine and row["phase"] == phase for row in rows) for phase in phases],
         f"{len({r['run'] for r in rows if r['engine'] == engine and r['identical'] and r['rounds_once']})}"
         f" of {arguments.runs}")
        for engine in ENGINES
    ]))  # fmt: skip

    def draw(axes: Any) -> None:
        for i, engine in enumerate(ENGINES):
            counts = [0] * 13
            for row in rows:
                if row["engine"] == engine and row["phase"] == "rounds":
                    counts[min(int(row["rounds_written"]), 12)] += 1
            positions = [x + 0.27 * (i - 1) for x in range(13)]
            axes.bar(positions, counts, width=0.25, color=COLOURS[engine], label=engine)
        axes.set(xlabel="rounds in the history when the process was killed", ylabel="kills", xticks=range(13))
        axes.set_title(f"{len(rows)} kills of {len(ENGINES) * arguments.runs} runs; all ended bit-identical"
                       if all(row["identical"] for row in rows) else "NOT ALL IDENTICAL")  # fmt: skip
        axes.legend(frameon=False)

    figure(RESULTS / "kills", draw)
    if not all(row["identical"] and row["rounds_once"] for row in rows):
        raise SystemExit("some runs differ")


if __name__ == "__main__":
    main()
