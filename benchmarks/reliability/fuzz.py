"""Many thousand inputs for every parser of external files.

    python benchmarks/reliability/fuzz.py [--examples 5000] [--atheris 20000]

First hypothesis: valid inputs with a few changes, and noise (`tests/fuzz_inputs.py`). Then, where atheris is installed
(`pip install atheris`), libFuzzer guided by coverage of the parsers, from the same seeds. An input is to be accepted,
or refused in one line that names the file, within seconds (`tests/fuzz_targets.py`); anything else ends the run and is
printed. Peak memory is watched.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, Log, machine, table, write_csv

MEMORY = 600
"""MB by which all inputs of a parser together may raise the peak."""


def peak() -> float:
    """The peak resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def with_hypothesis(name: str, examples: int, seed: int) -> dict[str, Any]:
    """Many examples for one parser."""
    from fuzz_inputs import inputs
    from fuzz_targets import TARGETS, judge
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    counts = {"accepted": 0, "refused": 0}
    slowest, before = 0.0, peak()
    home = Path.cwd()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as temporary:
        os.chdir(temporary)

        @seeded(seed)
        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None, deadline=None,
                  derandomize=False, phases=[Phase.generate, Phase.shrink])  # fmt: skip
        @given(inputs(TARGETS[name]))
        def check(data: bytes) -> None:
            nonlocal slowest
            began = time.perf_counter()
            counts["accepted" if judge(name, data, Path(temporary)) else "refused"] += 1
            slowest = max(slowest, time.perf_counter() - began)

        began = time.perf_counter()
        check()
        os.chdir(home)
    grown = peak() - before
    if grown > MEMORY:
        raise SystemExit(f"{name}: {grown:.0f} MB more memory")
    return {"fuzzer": "hypothesis", "parser": name, "inputs": sum(counts.values()), **counts,
            "slowest_ms": round(1e3 * slowest, 1), "peak_growth_mb": round(grown, 1),
            "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip


def with_atheris(name: str, runs: int, seed: int) -> dict[str, Any]:
    """libFuzzer in a separate process, because it ends its process."""
    with tempfile.TemporaryDirectory() as temporary:
        corpus, artifacts = Path(temporary, "corpus"), Path(temporary, "artifacts")
        corpus.mkdir()
        artifacts.mkdir()
        from fuzz_targets import TARGETS

        for i, content in enumerate(TARGETS[name].seeds):
            (corpus / str(i)).write_bytes(content)
        began = time.perf_counter()
        command = [sys.executable, __file__, "--inside", name, "--", f"-runs={runs}", f"-seed={seed}", "-max_len=8192",
                   "-timeout=20", "-rss_limit_mb=4096", f"-artifact_prefix={artifacts}/", str(corpus)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=temporary)
        found = list(artifacts.iterdir())
        if done.returncode or found:
            inputs = "\n".join(f"{path.name}: {path.read_bytes()[:300]!r}" for path in found)
            raise SystemExit(f"{name}: atheris ended with {done.returncode}\n{done.stderr[-3000:]}\n{inputs}")
        executed = re.findall(r"#(\d+)\s+DONE.*?cov: (\d+)", done.stderr)
        last = executed[-1] if executed else (str(runs), "0")
    return {"fuzzer": "atheris", "parser": name, "inputs": int(last[0]), "coverage": int(last[1]),
            "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip


def inside(name: str, arguments: list[str]) -> None:
    """The fuzzed process."""
    import atheris

    with atheris.instrument_imports(include=["fedhv", "tomllib", "json"]):
        from fuzz_targets import judge
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))

    def one(data: bytes) -> None:
        judge(name, data, folder)

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=5000, help="inputs from hypothesis for every parser")
    parser.add_argument("--atheris", type=int, default=20_000, help="inputs from atheris for every parser")
    parser.add_argument("--only", default="", help="comma-separated parsers")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.inside:
        inside(arguments.inside, [argument for argument in rest if argument != "--"])
        return
    from fuzz_targets import TARGETS

    log = Log(RESULTS / "fuzz.txt")
    log(machine())
    names = arguments.only.split(",") if arguments.only else list(TARGETS)
    # A command line takes a hundred times longer than a file.
    share = {"command line": 0.2}
    rows = []
    for name in names:
        rows.append(with_hypothesis(name, int(arguments.examples * share.get(name, 1)), arguments.seed))
        log(str(rows[-1]))
    if importlib.util.find_spec("atheris") is None:
        log("atheris is not installed: no coverage-guided inputs")
    else:
        for name in names:
            rows.append(with_atheris(name, int(arguments.atheris * share.get(name, 1)), arguments.seed))
            log(str(rows[-1]))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    rows = [{column: row.get(column, "") for column in columns} for row in rows]
    write_csv(RESULTS / "fuzz.csv", rows)
    log(table(columns, [tuple(row.values()) for row in rows]))
    log(
        f"{sum(int(row['inputs']) for row in rows):,} inputs; every one accepted, or refused in one line with its place"
    )


if __name__ == "__main__":
    main()
