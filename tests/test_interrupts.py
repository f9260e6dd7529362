"""Ctrl-C where a computation must not be interrupted in the middle."""

import os
import signal
import threading

import pytest
from problems import everything_random
from runs_on_disk import contents

from fedhv import FedHV, interrupts, run
from fedhv.engines import Sequential
from fedhv.history import read_history
from fedhv.interrupts import between_rounds
from fedhv.jobs import Interrupted


@pytest.fixture(autouse=True)
def as_on_the_command_line():
    """SIGINT as Python finds it when nobody ignores it, whoever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def go_through(steps, wait=True):
    """How many of the steps are begun before Ctrl-C is heard, and whether it is; "look" is where it may be."""
    begun = 0
    try:
        with between_rounds(wait) as now_is_fine:
            for step in steps:
                begun += 1
                now_is_fine() if step == "look" else step()
    except KeyboardInterrupt:
        return begun, True
    return begun, False


def test_it_waits_until_it_may_be_heard(capfd):
    twice_as_timeout_does = [press, press]
    assert go_through(["look", *twice_as_timeout_does, list, "look", list]) == (5, True)
    assert capfd.readouterr().err == "\nStopping after this round; Ctrl-C again stops at once.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_end_is_the_last_chance():
    assert go_through([press, list]) == (2, True)
    assert go_through([list, "look"]) == (2, False)


def test_a_second_one_is_heard_at_once(monkeypatch):
    monkeypatch.setattr(interrupts, "SAME", 0.0)
    assert go_through([press, press, list]) == (2, True)


def test_an_error_is_not_hidden_by_it():
    with pytest.raises(ZeroDivisionError):
        go_through([press, lambda: 1 / 0])


def test_sigterm_waits_only_where_it_is_ours():
    seen = []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        assert go_through([lambda: os.kill(os.getpid(), signal.SIGTERM), list, "look"]) == (3, True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        go_through([lambda: seen.append(signal.getsignal(signal.SIGTERM))])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIG_DFL]


def test_otherwise_it_is_heard_at_once():
    assert go_through([press, list], wait=False) == (1, True)


def test_other_threads_do_without():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(go_through(["look"])))
    thread.start()
    thread.join()
    assert seen == [(1, False)]


def test_a_run_stops_after_the_round_that_ctrl_c_came_in(monkeypatch, tmp_path):
    """On a GPU; here an engine that says that it must not be interrupted."""
    asked, ask = [], Sequential.ask

    def pressed_in_round_three(self, request, cohort):
        asked.append(cohort.round)
        if cohort.round == 2:
            press()
        return ask(self, request, cohort)

    def play(folder, resume=False):
        return run(
            everything_random(), FedHV(reference=(3.0, 3.0)), seed=3, rounds=5, out=folder, resume=resume,
            engine="sequential", override=["training.batch_size=4", "training.local_steps=2"],
        )  # fmt: skip

    play(tmp_path / "whole")
    monkeypatch.setattr(Sequential, "interruptible", False)
    with monkeypatch.context() as patched:
        patched.setattr(Sequential, "ask", pressed_in_round_three)
        with pytest.raises(Interrupted, match="Stopped after round 3 of 5"):
            play(tmp_path / "broken")
    assert asked == [0, 1, 2]
    assert len(read_history(tmp_path / "broken")) == 3
    play(tmp_path / "broken", resume=True)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
