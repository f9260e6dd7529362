"""Worker processes never outlive the program that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, sys, time
from functools import partial
import fedhv.processes

fedhv.processes.SECONDS_TO_STOP = 1.0

def work(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(300)

if __name__ == "__main__":
    fedhv.processes.in_processes([partial(work, path) for path in sys.argv[1:]], 2, lambda: None)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # a dead child of init may not have been collected yet
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_their_parent_is_killed(how, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    notes = [tmp_path / "one", tmp_path / "two"]
    parent, workers = subprocess.Popen([sys.executable, program, *notes]), []
    try:
        assert wait_for(lambda: all(note.exists() and note.read_text() for note in notes), 90)
        workers = [int(note.read_text()) for note in notes]
        parent.send_signal(how)
        parent.wait(timeout=30)
        assert wait_for(lambda: not any(map(alive, workers)), 40), "a worker is left behind"
    finally:
        parent.kill()
        parent.wait()
        for worker in filter(alive, workers):  # nothing is left behind by a test that fails either
            os.kill(worker, signal.SIGKILL)
