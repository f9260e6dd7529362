"""The reliability experiments' command line: help is help, and files come only at the end, where one wants them."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "reliability"
RESULTS = SCRIPTS.parents[1] / "results" / "reliability"


def few(content):
    """A damage instead of thousands."""
    yield "cut", "header", content[:10]


def broken_off(content):
    yield from few(content)
    raise SystemExit("broke off")


@pytest.fixture
def checkpoints(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(SCRIPTS)
    yield importlib.import_module("checkpoints")
    for name in ("checkpoints", "common"):
        sys.modules.pop(name, None)


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


def test_the_files_go_where_one_wants_them_and_only_at_the_end(checkpoints, monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    before = written()
    monkeypatch.setattr(checkpoints, "damaged", broken_off)
    with pytest.raises(SystemExit, match="broke off"):
        checkpoints.main(["--out", str(tmp_path / "broken")])
    assert not (tmp_path / "broken").exists()
    monkeypatch.setattr(checkpoints, "damaged", few)
    checkpoints.main(["--out", str(tmp_path / "out")])
    assert capsys.readouterr().err == ""
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".txt", ".png", ".pdf"}
    assert "2 loads of damaged checkpoints, 0 wrong" in (tmp_path / "out/checkpoints.txt").read_text()
    assert written() == before
