"""Compilation begins at a round that the rule names, on every machine; resumed runs switch where whole ones do."""

from __future__ import annotations

import pytest
import torch
from problems import everything_random

from fedhv import LocalTraining, Uniform
from fedhv.engines import Stacked, switching
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
        made.compiles, made.rounds = None, rounds  # as on a GPU
        calls = []

        def compiled(*arguments):
            calls.append(len(arguments[0]))
            return made._gradients(*arguments)

        made._compiled = compiled
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


def test_a_signal_ends_preparations():
    """On a GPU signals wait for the round to end, but not for a compilation."""

    class Endless:
        def compile(self):
            import time

            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        compile_all([Endless()], stopping=lambda: True)


def test_kernels_are_compiled_once_each_and_errors_wait():
    made = []

    class Kernel:
        def __init__(self, name):
            self.name = name

        def compile(self):
            if self.name == 2:
                raise RuntimeError("comes again where the kernel is started")
            made.append(self.name)

    compile_all([Kernel(i) for i in range(5)])
    assert sorted(made) == [0, 1, 3, 4]
    await_threads([], lambda: True)


def test_a_signal_ends_a_step_that_is_not_recorded_yet():
    engine = Stacked(everything_random())
    engine.stopping = lambda: True
    with pytest.raises(KeyboardInterrupt):
        next(simulate(engine, Uniform(), PLAN))
