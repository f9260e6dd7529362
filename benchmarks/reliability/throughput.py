"""Rounds per minute of a federation on one machine, and where the time goes.

    python benchmarks/reliability/throughput.py [--nodes 3 10 50] [--rounds 4] [--cold 3]

`fedhv flower up digits` with a reference, so without calibration, and next to nothing to compute (one local step).
Every node takes part in every round. The first round, in which nodes are sent hello messages, is left out. Wall-clock
time depends on what else the machine does; processor time hardly does, and gives the limit of an idle machine by its
processor. Flower's SuperNodes look for messages every three seconds, which is a limit too: 20 exchanges a minute.

`--cold` names numbers of nodes for which Flower's own SuperExec, which starts a new Python for every message, is
measured too. Then the parts of such a process are measured: what it takes until it answers, in processor seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
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
LONGEST = 1500.0
"""Seconds after which a federation is taken down."""
TICK = os.sysconf("SC_CLK_TCK")
KINDS = {
    "superlink": b"flower-superlink",
    "serverapp": b"flwr-serverapp",
    "supernode": b"flower-supernode",
    "superexec": b"superexec",
    "clientapp": b"flwr-clientapp",
}
"""Kinds of processes, each with a word of its command."""
COLD = "from fedhv.flower.deployment import Deployment; Deployment.forks = False; from fedhv.cli import main; main()"
"""The command line, with Flower's own SuperExec at every node."""


class Processor:
    """Processor seconds of all processes with a mark, alive or not, by kind."""

    def __init__(self, mark: str) -> None:
        self._sought, self._seen = f"{MARK}={mark}".encode(), dict[int, tuple[str, float]]()
        self._forked: dict[int, float] = {}

    def look(self) -> tuple[int, float]:
        """Look at the processes: how many live, and the memory that they share fairly."""
        count, memory = 0, 0.0
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._sought not in path.read_bytes().split(b"\0"):
                    continue
                self._note(path.parent)
                count += 1
                memory += proportional(path.parent)
            except (OSError, IndexError):
                continue
        return count, memory

    def _note(self, process: Path) -> None:
        words, name = (process / "cmdline").read_bytes(), (process / "comm").read_text()
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        own, children = ((int(fields[i]) + int(fields[i + 1])) / TICK for i in (11, 13))
        app = name.startswith("flwr-clientapp")
        kind = "clientapp" if app else next((each for each, word in KINDS.items() if word in words), "command")
        forks = b"superexec" in words and b"flower-superexec" not in words
        if forks and not name.startswith("superexec") and not app:
            self._forked[int(process.name)] = children  # exact: it waits for what it has forked
        self._seen[int(process.name)] = (kind, own if not (app and forks) else 0.0)

    def seconds(self) -> dict[str, float]:
        """The seconds so far, by kind. A process that has ended has what it had when it was last looked at."""
        found = dict.fromkeys((*KINDS, "command"), 0.0)
        for kind, spent in self._seen.values():
            found[kind] += spent
        found["clientapp"] += sum(self._forked.values())
        return found


def proportional(process: Path) -> float:
    """Bytes of a process's memory; of memory that it shares with others its part (PSS)."""
    for line in (process / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return 1024 * float(line.split()[1])
    return 0.0


def available() -> float:
    """Bytes of free memory."""
    found = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return 1024 * float(found.split()[1])


def federation(nodes: int, rounds: int, forks: bool, say: Any) -> dict[str, Any]:
    """One federation from start to end."""
    mark = uuid.uuid4().hex
    processor = Processor(mark)
    with tempfile.TemporaryDirectory(prefix="fedhv-throughput-") as folder:
        reference, out = Path(folder) / "reference.toml", Path(folder) / "run"
        reference.write_text("values = [2.6, 2.7]\n")
        words = ["flower", "up", "digits", "--nodes", str(nodes), "--rounds", str(rounds), "--out", str(out)]
        words += ["--reference", str(reference), "--reply-seconds", "600", "--node-seconds", "900", "--quiet"]
        changes = [f"federation.participants={nodes}", "federation.samples_per_client=20", "training.local_steps=1"]
        words += [word for change in [*changes, "evaluation.every=0"] for word in ("--set", change)]
        environment = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT / "src")}
        began = time.monotonic()
        command = [sys.executable, "-m", "fedhv"] if forks else [sys.executable, "-c", COLD]
        running = subprocess.Popen([*command, *words], env=environment)
        marks: list[tuple[float, dict[str, float]]] = []
        most, largest = 0, 0.0
        history = out / "history.jsonl"
        signal.signal(signal.SIGTERM, lambda *_: (running.terminate(), running.wait(120), sys.exit("ended by SIGTERM")))
        while running.poll() is None:
            time.sleep(0.2 if nodes < 20 else 1.0)
            count, memory = processor.look()
            most, largest = max(most, count), max(largest, memory)
            done = history.read_bytes().count(b"\n") if history.exists() else 0
            while len(marks) < done:
                marks.append((time.monotonic() - began, processor.seconds()))
            late = time.monotonic() - began > LONGEST
            if available() < LEAST_MEMORY or late:
                why = f"{LONGEST:g} s are over" if late else f"less than {LEAST_MEMORY / 1e9:g} GB of memory is left"
                say(f"{nodes} nodes: {why}; taken down")
                running.terminate()
                running.wait(120)
                break
    row: dict[str, Any] = {"apps": "forked" if forks else "started afresh", "nodes": nodes, "rounds": len(marks) - 1}
    about = {"most_processes": most, "memory_GB": round(largest / 1e9, 1), "load": round(os.getloadavg()[0], 1)}
    if len(marks) < 2:
        return row | about
    played, wall = len(marks) - 1, marks[-1][0] - marks[0][0]
    spent = {kind: marks[-1][1][kind] - marks[0][1][kind] for kind in marks[0][1]}
    total = sum(spent.values())
    row |= {
        "first_round_after_s": round(marks[0][0], 1),
        "s_per_round": round(wall / played, 1),
        "rounds_per_min": round(60 * played / wall, 2),
        "cpu_s_per_round": round(total / played, 1),
        "cpu_s_per_message": round(total / played / nodes, 2),
        "rounds_per_min_by_cpu": round(60 * (os.cpu_count() or 1) * played / total, 1),
    }
    row |= {f"cpu_{kind}": round(seconds / played / nodes, 2) for kind, seconds in spent.items()}
    return row | about


STEPS = {
    "Python starts": "pass",
    "Flower's ClientApp process imported": "import flwr.supernode.runtime.run_clientapp",
    "torch imported": "import flwr.supernode.runtime.run_clientapp, torch",
    "fedhv.flower imported": "import flwr.supernode.runtime.run_clientapp, torch, fedhv.flower.up_client",
    "the node's problem loaded": (
        "import flwr.supernode.runtime.run_clientapp, torch, fedhv.flower.up_client\n"
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
    parser.add_argument("--cold", type=int, nargs="*", default=[3])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS, help="[default: results/reliability]")
    arguments = parser.parse_args()
    import flwr

    say = Notes()
    say(f"{machine()}, flwr {flwr.__version__}")
    if arguments.cold:
        write_csv(arguments.out / "throughput-message.csv", anatomy(say))
    rows = []
    for nodes, forks in [*((n, False) for n in arguments.cold), *((n, True) for n in arguments.nodes)]:
        rows.append(federation(nodes, arguments.rounds, forks, say))
        say(str(rows[-1]))
    full = [row for row in rows if "rounds_per_min" in row]
    if full:
        write_csv(arguments.out / "throughput.csv", full)
        say(table(list(full[0]), [tuple(row.values()) for row in full]))
    say.write(arguments.out / "throughput.txt")


if __name__ == "__main__":
    main()
