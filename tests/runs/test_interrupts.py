"""Ctrl-C where a computation must not be interrupted in the middle."""

import math
import os
import signal
import sys
import threading
import time

import pytest
import torch
from observers import Watch
from problems import everything_random
from runs_on_disk import contents, records

import fedhv.runs.saving
import fedhv.runs.together
from fedhv import FedHV, FedHVError, compare, run
from fedhv.engines import Engine, Sequential, Stacked
from fedhv.runs.checkpoint import NAME as CHECKPOINT
from fedhv.runs.execution import Execution
from fedhv.support.errors import Interrupted
from fedhv.support.signals import deferred_signals

SMALL = ["training.batch_size=4", "training.local_steps=2"]


@pytest.fixture(autouse=True)
def as_on_the_command_line():
    """SIGINT as Python finds it when nobody ignores it, whoever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


# --- signals ----------------------------------------------------------------------------------------------


def go_through(steps, **how):
    """How many of the steps are begun before Ctrl-C is handled, and whether it is; "look" is where it may be."""
    begun = 0
    try:
        with deferred_signals(**how) as held:
            for step in steps:
                begun += 1
                held.handle() if step == "look" else step()
    except KeyboardInterrupt:
        return begun, True
    return begun, False


def test_it_waits_until_it_may_be_handled():
    assert go_through(["look", press, press, list, "look", list]) == (5, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_end_is_the_last_chance():
    assert go_through([press, list]) == (2, True)
    assert go_through([list, "look"]) == (2, False)


@pytest.mark.parametrize(("patience", "begun"), [(0.0, 3), (math.inf, 4)])
def test_an_impatient_one_does_not_wait(patience, begun):
    assert go_through([press, lambda: time.sleep(0.05), press, list], patience=patience) == (begun, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_ends_the_matter():
    with pytest.raises(ZeroDivisionError):
        go_through([press, lambda: 1 / 0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_what_the_program_wants_it_to(number):
    seen = []
    before = signal.signal(number, lambda number, frame: seen.append(number))
    try:
        found = go_through(
            [lambda: press(number), lambda: seen.append("before"), "look", "look", lambda: press(number)]
        )
    finally:
        signal.signal(number, before)
    assert (found, seen) == ((5, False), ["before", number, number])


def test_what_is_ignored_does_not_hide_another():
    """As in a worker, which leaves Ctrl-C to its parent and is then told by SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        assert go_through([press, "look", lambda: press(signal.SIGTERM), "look", list]) == (4, True)
        signal.signal(signal.SIGINT, lambda number, frame: None)  # handled, but it stops nothing
        assert go_through([press, lambda: press(signal.SIGTERM), "look", list]) == (3, True)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_one_inside_the_other():
    def inner():
        with deferred_signals():
            press()
            begun.append("inner")
        begun.append("outer")

    begun = []
    assert go_through([inner, "look"], patience=60.0) == (2, True)
    assert begun == ["inner", "outer"]


def test_otherwise_nothing_changes():
    assert go_through([press, list], wait=False) == (1, True)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(go_through(["look"])))
    thread.start()
    thread.join()
    assert seen == [(1, False)]


# --- runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "may"), [("cpu", True), ("cuda", False)])
def test_a_gpu_must_not_be_interrupted(device, may):
    engine = object.__new__(Sequential)
    engine.device = torch.device(device)
    assert engine.interruptible is may


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Engines that say that they must not be interrupted in the middle."""
    monkeypatch.setattr(Engine, "interruptible", False)


def pressed_in(number, monkeypatch, kind=Sequential, then=None):
    """Ctrl-C while the engine computes this round, counted from one; returns the rounds that are computed."""
    asked, ask = [], kind.ask_together

    def pressed(self, calls):
        rounds = {call.cohort.round + 1 for call in calls}
        asked.extend(sorted(rounds))
        if number in rounds:
            press()
            if then is not None:
                then()
        return ask(self, calls)

    monkeypatch.setattr(kind, "ask_together", pressed)
    return asked


def play(folder, rounds=5, **options):
    return run(
        everything_random(), FedHV(reference=(3.0, 3.0)), seed=3, rounds=rounds, out=folder, engine="sequential",
        override=SMALL, **options,
    )  # fmt: skip


@pytest.mark.usefixtures("like_a_gpu")
def test_a_run_stops_after_the_round_that_ctrl_c_came_in(monkeypatch, tmp_path):
    play(tmp_path / "whole")
    with monkeypatch.context() as patched:
        asked, watch = pressed_in(3, patched), Watch()
        with pytest.raises(Interrupted, match=r"Stopped after round 3 of 5; the run in .* can be resumed"):
            play(tmp_path / "broken", observer=watch)
    assert asked == [1, 2, 3]
    assert len(records(tmp_path / "broken")) == 3
    assert (tmp_path / "broken" / CHECKPOINT).exists()
    play(tmp_path / "broken", resume=True)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.usefixtures("like_a_gpu")
def test_a_program_that_ends_in_its_own_way_finds_everything_saved(monkeypatch, tmp_path):
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", 1000.0)
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(7))
    pressed_in(3, monkeypatch)
    with pytest.raises(SystemExit):
        play(tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    assert len(records(tmp_path)) == 3


@pytest.mark.usefixtures("like_a_gpu")
def test_in_the_last_round_nothing_is_left_to_resume(monkeypatch, tmp_path):
    pressed_in(5, monkeypatch)
    with pytest.raises(Interrupted, match=r"Stopped; the run in .* has just ended"):
        play(tmp_path)
    assert (tmp_path / "summary.json").exists()


@pytest.mark.usefixtures("like_a_gpu")
def test_an_observer_that_is_gone_costs_nothing(monkeypatch, tmp_path):
    """As in `fedhv run … | tee log`, where Ctrl-C ends `tee` as well."""

    class Pipe(Watch):
        gone = False

        def message(self, text):
            if self.gone:
                raise BrokenPipeError

        def round(self, round):
            if self.gone:
                raise BrokenPipeError

    pipe = Pipe()
    pressed_in(3, monkeypatch, then=lambda: setattr(pipe, "gone", True))
    with pytest.raises(Interrupted, match="Stopped after round 3 of 5"):
        play(tmp_path, observer=pipe)
    assert (tmp_path / CHECKPOINT).exists()


@pytest.mark.usefixtures("like_a_gpu")
def test_a_signal_that_stops_nothing_hides_no_round(monkeypatch, tmp_path):
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    heard, told = [], []

    class Told(Watch):
        def round(self, round):
            told.append(round.number)

    pressed_in(3, monkeypatch)
    play(tmp_path, observer=Told())
    assert told == [1, 2, 3, 4, 5]
    assert heard == [signal.SIGINT]


@pytest.mark.usefixtures("like_a_gpu")
def test_an_engine_that_fails_meanwhile_is_not_the_end_of_ctrl_c(monkeypatch, setting_file, tmp_path):
    def fail():
        raise FedHVError("The engine cannot go on.")

    asked = pressed_in(2, monkeypatch, then=fail)
    with pytest.raises(Interrupted, match=r"The engine cannot go on\..* Stopped\."):
        compare(str(setting_file), ["uniform"], seeds=(0, 1), rounds=4, out=tmp_path, jobs=1, engine="sequential")
    assert asked == [1, 2]


@pytest.mark.usefixtures("like_a_gpu")
def test_runs_that_are_played_together_stop_together(monkeypatch, setting_file, tmp_path):
    pressed_in(2, monkeypatch, Stacked)
    with pytest.raises(Interrupted, match="every run can be resumed"):
        compare(str(setting_file), ["uniform"], seeds=(0, 1, 2), rounds=4, out=tmp_path, engine="stacked")
    # A preparation of the engine in that round, such as a recording, is given up; the round is then computed again.
    assert [len(records(folder)) for folder in sorted(tmp_path.glob("uniform-*"))] in ([1, 1, 1], [2, 2, 2])
    assert len(list(tmp_path.glob(f"uniform-*/{CHECKPOINT}"))) == 3


def test_another_ctrl_c_before_saving_has_begun_is_not_the_end(monkeypatch, tmp_path):
    """A second signal a moment after the first, as some programs send it."""
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", 1000.0)
    pressed_in(3, monkeypatch)
    save, begun = fedhv.runs.together._save, []

    def interrupted_once(executions):
        begun.append(True)
        if len(begun) == 1:
            raise KeyboardInterrupt
        save(executions)

    monkeypatch.setattr(fedhv.runs.together, "_save", interrupted_once)
    with pytest.raises(Interrupted, match="Stopped after round"):
        play(tmp_path)
    assert (tmp_path / CHECKPOINT).exists()


def test_a_run_that_cannot_be_saved_does_not_keep_others_from_it(monkeypatch, setting_file, tmp_path):
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", 1000.0)
    save = Execution.save

    def full_disk(self):
        if self.job.seed == 1 and self.done > self.saving.saved:
            raise FedHVError("The disk is full.")
        save(self)

    pressed_in(2, monkeypatch, Stacked)
    monkeypatch.setattr(Execution, "save", full_disk)
    with pytest.raises(FedHVError, match="The disk is full"):
        compare(str(setting_file), ["uniform"], seeds=(0, 1, 2), rounds=4, out=tmp_path, engine="stacked")
    assert len(list(tmp_path.glob(f"uniform-*/{CHECKPOINT}"))) == 2


@pytest.mark.parametrize("interruptible", [True, False])
def test_another_ctrl_c_does_not_end_saving(monkeypatch, tmp_path, interruptible):
    monkeypatch.setattr(Engine, "interruptible", interruptible)
    monkeypatch.setattr(fedhv.runs.together, "PATIENCE", 0.0)
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", 1000.0)
    save = Execution.save

    def impatiently(self):
        press()
        time.sleep(0.01)
        save(self)

    pressed_in(3, monkeypatch)
    monkeypatch.setattr(Execution, "save", impatiently)
    with pytest.raises(Interrupted, match="Stopped after round"):
        play(tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
