"""The reliability experiments' command line: help is help, and files come only at the end, where one wants them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "reliability"
RESULTS = SCRIPTS.parents[1] / "results" / "reliability"

# Runs a script's `main` with a few damages instead of thousands, or with one that breaks off.
FEW = """
import sys
sys.path.insert(0, sys.argv[1])
import checkpoints
def few(content):
    yield "cut", "header", content[:10]
    if sys.argv[3] == "breaks off":
        raise SystemExit("broke off")
checkpoints.damaged = few
checkpoints.main(["--out", sys.argv[2]])
"""


def called(*arguments):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


def written():
    return {path.name: path.stat().st_mtime_ns for path in RESULTS.glob("*")}


@pytest.mark.parametrize("script", ["checkpoints.py", "disk.py"])
def test_help_writes_nothing(script):
    before = written()
    done = called(SCRIPTS / script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--out" in done.stdout
    assert called(SCRIPTS / script, "--ot", "x").returncode == 2
    assert written() == before


def test_the_files_go_where_one_wants_them_and_only_at_the_end(tmp_path):
    pytest.importorskip("matplotlib")
    before = written()
    broken = called("-c", FEW, SCRIPTS, tmp_path / "broken", "breaks off")
    assert (broken.returncode, broken.stderr.strip()) == (1, "broke off")
    assert not (tmp_path / "broken").exists()
    done = called("-c", FEW, SCRIPTS, tmp_path / "out", "ends")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".txt", ".png", ".pdf"}
    assert "2 loads of damaged checkpoints, 0 wrong" in (tmp_path / "out/checkpoints.txt").read_text()
    assert written() == before
