"""Worker processes stop when they are told to, and never outlive the program that started them."""

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


INTERRUPTED = """
import os, signal, sys, threading, time
from functools import partial
from fedhv.errors import InputError
from fedhv.jobs import Interrupted
from fedhv.processes import in_processes

def work(path, seconds, wrong):
    open(path, "w").close()
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        open(path + "-stopped", "w").close()
        raise Interrupted("in good order") from None
    if wrong:
        raise InputError("wrong")

def stop_when_one_is_idle(paths):
    while not all(map(os.path.exists, paths)):
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    how, *paths = sys.argv[1:]
    if how == "interrupt":
        threading.Thread(target=stop_when_one_is_idle, args=(paths,), daemon=True).start()
    calls = [partial(work, paths[0], 300, False), partial(work, paths[1], 1 if how == "wrong" else 0, how == "wrong")]
    if how == "wrong":
        calls += [partial(work, paths[2], 0, False)]
    try:
        in_processes(calls, len(calls), lambda: None)
    except (Interrupted, InputError) as error:
        print(error)
"""


@pytest.mark.parametrize(("how", "said"), [("interrupt", "Stopped; every run can be resumed."), ("wrong", "wrong")])
def test_a_worker_without_work_does_not_keep_the_others_from_stopping(how, said, tmp_path):
    """It waits with the lock of the queue in its hand, and must not be killed there."""
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED)
    paths = [tmp_path / name for name in ("long", "short", "idle")][: 2 if how == "interrupt" else 3]
    running = subprocess.Popen([sys.executable, program, how, *paths], stdout=subprocess.PIPE, text=True)
    try:
        out, _ = running.communicate(timeout=90)
    finally:
        running.kill()
        running.wait()
    assert out.strip() == said
    assert (tmp_path / "long-stopped").exists()
