"""Compilation begins at a round that the rule names, on every machine; resumed runs switch where whole ones do."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
from problems import everything_random
from waiting import HANG

from fedhv import LocalTraining, Uniform
from fedhv.engines import Stacked, switching
from fedhv.engines.compiled import Compiled
from fedhv.engines.kernels import ahead
from fedhv.engines.kernels.ahead import await_threads, compile_all
from fedhv.engines.switching import EAGER, compiles_in, rounds_to_repay
from fedhv.simulation.rounds import Plan, simulate


def test_short_runs_and_first_rounds_are_not_compiled():
    need = rounds_to_repay(10, 10)
    assert not any(compiles_in(number, EAGER + need - 1, 10, 10) for number in (0, EAGER, 10 * need))
    assert not compiles_in(EAGER - 1, EAGER + need, 10, 10)
    assert compiles_in(EAGER, EAGER + need, 10, 10)
    assert not compiles_in(EAGER, 0, 10, 10), "T is not known"


def test_the_paper_settings_do_not_repay_a_compilation():
    assert rounds_to_repay(tensors=10, steps=10) > 500


@pytest.fixture
def quick(monkeypatch):
    """Compiled from round 3 on, if there are six rounds; compilation itself is left out."""
    monkeypatch.setattr(switching, "EAGER", 2)
    monkeypatch.setattr(switching, "rounds_to_repay", lambda tensors, steps: 4)

    def engine(rounds=6):
        made = Stacked(everything_random())
        made.training.compiles, made.rounds = None, rounds  # as on a GPU
        calls = []

        def compiled(*arguments):
            calls.append(len(arguments[0]))
            return made.steps.gradients(*arguments)

        made.steps.compiled = compiled
        return made, calls

    return engine


PLAN = Plan(rounds=6, participants=2, local=LocalTraining(2, 4, 0.1))


def test_the_switch_is_announced_and_recorded(quick):
    engine, calls = quick()
    modes = []
    for finished in simulate(engine, Uniform(), PLAN):
        modes.append(engine.measured(len(modes) + 1))
        if finished.number == 2:  # before the round that takes long
            (note,) = engine.notes
            assert note == (
                "Round 3 takes longer: the computation is compiled, which the 4 rounds that are left repay."
            )
    assert modes == [{}] * 2 + [{"compiled": True}] * 4
    assert len(calls) == 4 * PLAN.local.steps


def test_a_resumed_run_is_compiled_in_the_same_rounds(quick):
    whole, _ = quick()
    states = [finished.state for finished in simulate(whole, Uniform(), PLAN)]
    for start in (1, 4):
        engine, calls = quick()
        *_, last = simulate(engine, Uniform(), PLAN, states[start - 1], start)
        assert torch.equal(last.state.model, states[-1].model)
        assert len(calls) == min(4, 6 - start) * PLAN.local.steps


def test_a_short_run_is_never_compiled(quick):
    engine, calls = quick(rounds=5)
    list(simulate(engine, Uniform(), PLAN))
    assert calls == []
    assert engine.notes == []


class Kernel:
    """Notes which processes compiled it."""

    def __init__(self, place, number, elsewhere=lambda: None, here=lambda: None):
        self.file, self._elsewhere, self._here = place / str(number), elsewhere, here

    def compile_elsewhere(self):
        self._note()
        self._elsewhere()

    def compile(self):
        self._note()
        self._here()

    def _note(self):
        with self.file.open("a") as file:
            file.write(f"{os.getpid()}\n")

    @property
    def compiled_by(self):
        return [int(line) for line in self.file.read_text().split()]


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr("fedhv.engines.kernels.ahead.usable_cores", lambda: 2)


def test_a_signal_ends_preparations(tmp_path, two_cores, monkeypatch):
    """On a GPU signals wait for the round to end, but not for a compilation."""
    monkeypatch.setattr(ahead, "LEAVING", HANG)
    kernels = [Kernel(tmp_path, number, elsewhere=lambda: time.sleep(600)) for number in range(2)]
    with pytest.raises(KeyboardInterrupt):
        compile_all(kernels, stopping=lambda: all(kernel.file.exists() and kernel.compiled_by for kernel in kernels))
    for kernel in kernels:
        (process,) = kernel.compiled_by
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_signal_does_not_wait_until_killed_processes_have_gone(tmp_path, two_cores, monkeypatch):
    gone, ended = threading.Event(), ahead._ended

    def ended_late(process, options=0):
        return ended(process, options) if options else gone.wait(HANG) and ended(process)

    monkeypatch.setattr(ahead, "_ended", ended_late)
    monkeypatch.setattr(ahead, "LEAVING", 0.1)
    others = threading.enumerate()
    kernels = [Kernel(tmp_path, number, elsewhere=lambda: time.sleep(600)) for number in range(2)]
    with pytest.raises(KeyboardInterrupt):
        compile_all(kernels, stopping=lambda: all(kernel.file.exists() and kernel.compiled_by for kernel in kernels))
    (waiting,) = set(threading.enumerate()) - set(others)
    gone.set()
    waiting.join(HANG)
    for kernel in kernels:
        (process,) = kernel.compiled_by
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_signal_ends_preparations_in_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("fedhv.engines.kernels.ahead.usable_cores", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        compile_all([Kernel(tmp_path, 0, here=lambda: time.sleep(30))], stopping=lambda: True)


def test_after_a_signal_threads_compile_no_more_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr("fedhv.engines.kernels.ahead.usable_cores", lambda: 1)
    going, others = threading.Event(), threading.enumerate()
    kernels = [Kernel(tmp_path, number, here=going.wait) for number in range(3)]
    with pytest.raises(KeyboardInterrupt):
        compile_all(kernels, stopping=kernels[0].file.exists)
    going.set()
    for thread in threading.enumerate():
        if thread not in others:
            thread.join(HANG)
    assert [kernel.file.exists() for kernel in kernels] == [True, False, False]


class Signal:
    """Arrives when a function has been called so many times, and counts the calls after that."""

    def __init__(self, after):
        self.calls, self.after = 0, after

    def count(self):
        self.calls += 1

    def arrived(self):
        return self.calls >= self.after


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_a_signal_ends_a_trace(place):
    """The trace of a deep model takes many seconds before its compilation begins."""
    signal = Signal(after=3)

    def function(x):
        x = x.requires_grad_()
        y = x
        for _ in range(10):
            y = y.sin()
            if place == "backward":
                y.register_hook(lambda g: signal.count())
            else:
                signal.count()
        return torch.autograd.grad(y.sum(), x)[0]

    with pytest.raises(KeyboardInterrupt):
        Compiled(function, signal.arrived)(torch.zeros(2))
    assert signal.calls == 3
    assert torch.ones(2).sin().sum() > 0, "no mode is left behind"


def test_what_ran_out_of_memory_in_its_first_call_is_not_compiled_again(monkeypatch):
    compiled, calls = [], []

    def compile_(graph, **_):
        def call(*arguments):
            calls.append(1)
            if len(calls) < 3:
                raise torch.cuda.OutOfMemoryError("full")
            return graph(*arguments)

        compiled.append(graph)
        return call

    monkeypatch.setattr(torch, "compile", compile_)
    function = Compiled(lambda x: x + 1)
    for _ in range(2):
        with pytest.raises(torch.cuda.OutOfMemoryError):
            function(torch.zeros(3))
    assert torch.equal(function(torch.zeros(3)), torch.ones(3))
    assert len(compiled) == 1


def test_kernels_are_compiled_by_other_processes_and_loaded_here(tmp_path, two_cores):
    kernels = [Kernel(tmp_path, number) for number in range(5)]
    compile_all(kernels)
    for kernel in kernels:
        there, here = kernel.compiled_by
        assert here == os.getpid() != there
    await_threads([], lambda: True)


def test_without_room_for_processes_kernels_are_compiled_here(tmp_path, two_cores, monkeypatch):
    def full():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", full)
    kernels = [Kernel(tmp_path, number) for number in range(3)]
    compile_all(kernels)
    assert all(kernel.compiled_by == [os.getpid()] for kernel in kernels)


def test_errors_of_compilations_wait(tmp_path, two_cores):
    """They come again where the kernel is started."""

    def fail():
        raise RuntimeError

    kernels = [Kernel(tmp_path, number, fail, fail) for number in range(3)]
    compile_all(kernels)
    assert all(len(kernel.compiled_by) == 2 for kernel in kernels)


def test_a_compiler_that_dies_leaves_its_kernels_to_this_process(tmp_path, two_cores):
    kernels = [Kernel(tmp_path, number, elsewhere=lambda: os.kill(os.getpid(), signal.SIGKILL)) for number in range(5)]
    compile_all(kernels)
    assert all(kernel.compiled_by[-1] == os.getpid() for kernel in kernels)
    assert sum(len(kernel.compiled_by) for kernel in kernels) == 5 + 2


@pytest.mark.parametrize("interrupted", [False, True])
def test_where_the_system_removes_ended_processes_kernels_are_compiled_too(tmp_path, two_cores, interrupted):
    """A program that started this one may have set SIGCHLD to be ignored."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        kernels = [Kernel(tmp_path, number) for number in range(3)]
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                compile_all(kernels, stopping=lambda: all(kernel.file.exists() for kernel in kernels))
        else:
            compile_all(kernels)
            assert all(kernel.compiled_by[-1] == os.getpid() for kernel in kernels)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_processes_that_are_deadlocked_leave_their_kernels_to_this_process(tmp_path, two_cores, monkeypatch):
    monkeypatch.setattr(ahead, "SILENT", 0.5)
    monkeypatch.setattr(ahead, "LEAVING", HANG)
    kernels = [Kernel(tmp_path, number, elsewhere=lambda: time.sleep(600)) for number in range(3)]
    compile_all(kernels)
    assert all(kernel.compiled_by[-1] == os.getpid() for kernel in kernels)
    for kernel in kernels[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(kernel.compiled_by[0], 0)


def test_processes_that_take_long_are_waited_for_while_they_compile(tmp_path, two_cores, monkeypatch):
    monkeypatch.setattr(ahead, "SILENT", 2.0)
    kernels = [Kernel(tmp_path, number, elsewhere=lambda: time.sleep(0.1)) for number in range(50)]
    compile_all(kernels)
    assert all(len(kernel.compiled_by) == 2 for kernel in kernels)


def test_a_signal_ends_a_step_that_is_not_recorded_yet():
    engine = Stacked(everything_random())
    engine.stopping = lambda: True
    with pytest.raises(KeyboardInterrupt):
        next(simulate(engine, Uniform(), PLAN))
