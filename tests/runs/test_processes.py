"""Worker processes stop when they are told to, and never outlive the program that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG, wait_until

import fedhv

PROGRAM = """
import os, sys, time
from functools import partial
import fedhv.runs.processes
import fedhv.support.pool

fedhv.support.pool.SECONDS_TO_STOP = 1.0

def work(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(100_000)

if __name__ == "__main__":
    fedhv.runs.processes.in_processes([partial(work, path) for path in sys.argv[1:]], 2, lambda: None)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # a dead child of init may not have been collected yet
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_their_parent_is_killed(how, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    notes = [tmp_path / "one", tmp_path / "two"]
    parent, workers = subprocess.Popen([sys.executable, program, *notes]), []
    try:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes), "both workers", parent)
        workers = [int(note.read_text()) for note in notes]
        parent.send_signal(how)
        parent.wait(timeout=HANG)
        wait_until(lambda: not any(map(alive, workers)), "a worker that is left behind")
    finally:
        parent.kill()
        parent.wait()
        for worker in filter(alive, workers):  # nothing is left behind by a test that fails either
            os.kill(worker, signal.SIGKILL)


INTERRUPTED = """
import multiprocessing, os, signal, sys, threading, time
from functools import partial
from fedhv.support.errors import InputError
from fedhv.support.errors import Interrupted
import fedhv.runs.processes
from fedhv.runs.processes import in_processes

fedhv.runs.processes.SECONDS_TO_STOP = 100_000

if __name__ == "__mp_main__" and sys.argv[1] == "some are starting":  # in a worker, before it knows what to do
    try:
        os.close(os.open(sys.argv[2] + "-first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        time.sleep(2)

def work(path, seconds):
    open(path, "w").close()
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        open(path + "-stopped", "w").close()
        raise Interrupted("in good order") from None

def fail(other):
    while not os.path.exists(other):
        time.sleep(0.01)
    raise InputError("wrong")

def stop(when, paths, later):
    while not when(map(os.path.exists, paths)):
        time.sleep(0.01)
    time.sleep(later)
    for each in (*multiprocessing.active_children(), multiprocessing.current_process()):  # as a terminal does
        os.kill(each.pid, signal.SIGINT)
        time.sleep(0.2)

if __name__ == "__main__":
    how, *paths = sys.argv[1:]
    if how == "one is idle":
        threading.Thread(target=stop, args=(all, paths[:2], 0.5), daemon=True).start()
        calls = [partial(work, paths[0], 100_000), partial(work, paths[1], 0)]
    elif how == "some are starting":
        threading.Thread(target=stop, args=(any, paths, 0), daemon=True).start()
        calls = [partial(work, path, 100_000) for path in (*paths, "a", "b", "c")]
    else:
        calls = [partial(work, paths[0], 100_000), partial(fail, paths[0]), partial(work, paths[2], 0)]
    try:
        in_processes(calls, min(3, len(calls)), lambda: None)
    except (Interrupted, InputError) as error:
        print(error)
"""


@pytest.mark.parametrize("how", ["one is idle", "some are starting", "one has bad input"])
def test_workers_stop_in_good_order_whatever_they_are_at(how, tmp_path):
    """An idle one waits with the lock of the queue in its hand, and must not be killed there; nor one that starts."""
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED)
    paths = [tmp_path / name for name in ("long", "short", "idle")]
    running = subprocess.Popen(
        [sys.executable, program, how, *paths], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = running.communicate(timeout=HANG)
    finally:
        running.kill()
        running.wait()
    assert out.strip() == ("wrong" if how == "one has bad input" else "Stopped; every run can be resumed.")
    assert err == ""
    begun = [path for path in paths if path.exists() and (path.name == "long" or how == "some are starting")]
    assert begun
    assert all(path.with_name(f"{path.name}-stopped").exists() for path in begun)


ODD = """
from fedhv.runs.processes import in_processes

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def work():
    raise Odd("this", "that")

if __name__ == "__main__":
    try:
        in_processes([work], 1, lambda: None)
    except RuntimeError as error:
        print(error, any("in work" in note for note in error.__notes__))
"""


def test_an_exception_that_does_not_survive_a_pipe_is_said_all_the_same(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ODD)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=HANG)
    assert done.stdout.strip() == "Odd: this and that True", done.stderr


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_refused_with_the_remedy(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import fedhv\n"
        "fedhv.compare('digits', ['uniform', 'fsmgda'], [0], rounds=1, jobs=2, participants=2, local_steps=1)\n"
    )
    source = str(Path(fedhv.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert 'Put its calls under `if __name__ == "__main__":`' in last
    assert done.stderr.count("Traceback") == 1
