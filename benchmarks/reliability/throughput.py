"""Rounds per minute of a federation on one machine, and where the time goes.

    python benchmarks/reliability/throughput.py [--nodes 3 10 50] [--rounds 4]

`fedhv flower up digits` with a reference, so without calibration, and next to nothing to compute (one local step).
Every node takes part in every round. The first round, in which nodes are found and greeted, is left out. Wall-clock
time depends on what else the machine does; processor time does not, and gives the limit of an idle machine.

Then the parts of one message are measured: what a process of Flower's takes until it answers, in processor seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, Notes, machine, table, write_csv

MARK = "FEDHV_THROUGHPUT"
LEAST_MEMORY = 2.5e9
"""Bytes of free memory below which the federation is taken down, so that nothing else on the machine is."""
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(mark: str, seen: dict[int, float]) -> tuple[float, int, float]:
    """Of all processes with this mark so far, alive or not; how many live, and the memory that they share fairly."""
    count, memory = 0, 0.0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() not in path.read_bytes().split(b"\0"):
                continue
            fields = (path.parent / "stat").read_text().rpartition(")")[2].split()
            seen[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / TICK
            count += 1
            memory += int((path.parent / "statm").read_text().split()[1]) * resource.getpagesize()
        except (OSError, IndexError):
            continue
    return sum(seen.values()), count, memory


def available() -> float:
    """Bytes of free memory."""
    found = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return 1024 * float(found.split()[1])


def federation(nodes: int, rounds: int, say: Any) -> dict[str, Any]:
    """One federation from start to end."""
    mark, seen = uuid.uuid4().hex, {}
    with tempfile.TemporaryDirectory(prefix="fedhv-throughput-") as folder:
        reference, out = Path(folder) / "reference.toml", Path(folder) / "run"
        reference.write_text("values = [2.6, 2.7]\n")
        words = ["flower", "up", "digits", "--nodes", str(nodes), "--rounds", str(rounds), "--out", str(out)]
        words += ["--reference", str(reference), "--reply-seconds", "600", "--node-seconds", "600", "--quiet"]
        changes = [f"federation.participants={nodes}", "federation.samples_per_client=40", "training.local_steps=1"]
        words += [word for change in [*changes, "evaluation.every=0"] for word in ("--set", change)]
        environment = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT / "src")}
        began = time.monotonic()
        running = subprocess.Popen([sys.executable, "-m", "fedhv", *words], env=environment)
        marks: list[tuple[float, float]] = []
        most, largest, least = 0, 0.0, available()
        history = out / "history.jsonl"
        while running.poll() is None:
            time.sleep(0.2)
            spent, count, memory = processor_seconds(mark, seen)
            most, largest, least = max(most, count), max(largest, memory), min(least, available())
            done = history.read_bytes().count(b"\n") if history.exists() else 0
            while len(marks) < done:
                marks.append((time.monotonic() - began, spent))
            if available() < LEAST_MEMORY:
                say(f"{nodes} nodes: less than {LEAST_MEMORY / 1e9:g} GB of memory is left; taken down")
                running.terminate()
                running.wait(120)
                break
    played = len(marks) - 1
    if played < 1:
        return {
            "nodes": nodes,
            "rounds": max(0, played),
            "most_processes": most,
            "resident_GB": round(largest / 1e9, 1),
        }
    wall, processor = (marks[-1][i] - marks[0][i] for i in (0, 1))
    return {
        "nodes": nodes,
        "rounds": played,
        "start_and_first_round_s": round(marks[0][0], 1),
        "seconds_per_round": round(wall / played, 1),
        "rounds_per_minute": round(60 * played / wall, 2),
        "processor_s_per_round": round(processor / played, 1),
        "processor_s_per_message": round(processor / played / nodes, 2),
        "limit_rounds_per_minute": round(60 * (os.cpu_count() or 1) * played / processor, 2),
        "most_processes": most,
        "resident_GB": round(largest / 1e9, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


STEPS = {
    "Python starts": "pass",
    "Flower's ClientApp process imported": "import flwr.supernode.runtime.run_clientapp",
    "torch imported": "import flwr.supernode.runtime.run_clientapp, torch",
    "fedhv.flower imported": "import flwr.supernode.runtime.run_clientapp, torch, fedhv.flower.apps",
    "the node's problem loaded": (
        "import flwr.supernode.runtime.run_clientapp, torch, fedhv.flower.apps\n"
        "from fedhv.runs.resolve import resolve\n"
        "resolve('digits', ['federation.clients=3', 'federation.participants=3'])"
    ),
}


def anatomy(say: Any) -> list[dict[str, Any]]:
    """What each step of a message's process adds, in processor seconds: the least of three."""
    rows, before = [], 0.0
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    for name, program in STEPS.items():
        found = []
        for _ in range(3):
            start = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
        rows.append({"step": name, "processor_s": round(min(found), 2), "adds_s": round(min(found) - before, 2)})
        before = min(found)
    say(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS, help="[default: results/reliability]")
    arguments = parser.parse_args()
    import flwr

    say = Notes()
    say(f"{machine()}, flwr {flwr.__version__}")
    write_csv(arguments.out / "throughput-message.csv", anatomy(say))
    rows = []
    for nodes in arguments.nodes:
        rows.append(federation(nodes, arguments.rounds, say))
        say(str(rows[-1]))
    full = [row for row in rows if "rounds_per_minute" in row]
    if full:
        write_csv(arguments.out / "throughput.csv", full)
        say(table(list(full[0]), [tuple(row.values()) for row in full]))
    say.write(arguments.out / "throughput.txt")


if __name__ == "__main__":
    main()
