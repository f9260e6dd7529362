"""What all tests share: one thread, reproducible properties, and the command line called as a user would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes that each import PyTorch
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")  # takes longer than the one quick kernel

import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from problems import SETTING, everything_random, quadratic
from waiting import HANG

import fedhv
from fedhv.cli import main
from fedhv.report.watch import LiveStudy, PageServer
from fedhv.support.collection import only_new_objects
from fedhv.support.pool import Pool
from fedhv.support.signals import SIGNALS

torch.set_num_threads(1)


settings.register_profile("quick", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=200)  # every night
settings.load_profile("quick")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of scripts that run in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
SOURCE = Path(fedhv.__file__).parents[1]


def pytest_collection_modifyitems(items):
    for item in items:
        if "cluster" in item.fixturenames:  # starts Ray
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def old_objects_are_passed_over():
    """Modules and tests stay: collections of garbage need not look through a million objects."""
    with only_new_objects():  # not gc.freeze: every run would count the million
        yield


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def quadratic_problem():
    return quadratic()


@pytest.fixture
def random_problem():
    return everything_random()


@pytest.fixture
def setting_file(tmp_path) -> Path:
    """A setting of one's own that runs in a fraction of a second."""
    path = tmp_path / "small.toml"
    path.write_text(SETTING)
    return path


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """`fedhv …` in this process, in an empty working directory."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fedhv", *map(str, arguments)])
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as end:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        printed = capsys.readouterr()
        return Outcome(end.value.code, printed.out, printed.err)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return call


@pytest.fixture
def forked(monkeypatch):
    """Forks the workers of a study. Spawned ones import PyTorch first, which takes longer than the runs of a test."""
    monkeypatch.setattr("fedhv.runs.processes.Pool", partial(Pool, fork=True))


@pytest.fixture
def process(tmp_path):
    """`python -m fedhv …` in a process of its own, started in an empty working directory."""
    started: list[subprocess.Popen] = []

    def start(*arguments: object, **environment: str) -> subprocess.Popen:
        path = os.pathsep.join([str(SOURCE), str(TESTS), os.environ.get("PYTHONPATH", "")])
        running = subprocess.Popen(
            [sys.executable, "-m", "fedhv", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(running)
        return running

    yield start
    for running in started:
        if running.poll() is None:
            running.kill()
        running.communicate()


@pytest.fixture
def finished(process):
    """`python -m fedhv …`, waited for."""

    def call(*arguments: object, **environment: str) -> Outcome:
        running = process(*arguments, **environment)
        out, err = running.communicate(timeout=HANG)
        return Outcome(running.returncode, out, err)

    return call


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id) -> Path:
    """The documentation, built once for all processes of the tests."""
    from docs.building import build_site

    here = tmp_path_factory.getbasetemp()
    shared = here if worker_id == "master" else here.parent
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            build_site(shared / "building").rename(shared / "site")
    return shared / "site"


@pytest.fixture
def serve():
    """The server of a live page, in a thread."""
    started: list[tuple[PageServer, threading.Thread]] = []

    def start(folder: Path) -> PageServer:
        server = PageServer(LiveStudy([folder]))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()
