"""The time of rounds that are computed together."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from fedhv import LocalTraining, Problem, Uniform, regression
from fedhv.engines import Sequential
from fedhv.simulation import rounds as loop
from fedhv.simulation.rounds import Plan, initial_state, rounds, simulate_together


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, inputs):
        return [self.layer(inputs)]


def test_runs_that_are_computed_together_share_the_time(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(ticks)))
    data = (torch.ones(4, 2), [torch.ones(4, 1)])
    engine = Sequential(Problem.from_clients(Net, [regression("level", 1.0)], [data, data], test=data))
    plan = Plan(2, 2, LocalTraining(1, 2, 0.1))
    method = Uniform()
    runs = [
        rounds(engine.layout, engine.population, method, plan, initial_state(engine, method, seed)) for seed in (0, 1)
    ]
    seconds: list[list[float]] = [[], []]
    for run, finished in simulate_together(engine, runs):
        seconds[run].append(finished.seconds)
    assert seconds[0] == seconds[1]
    assert all(each > 0 for each in seconds[0])
