"""Examples that clients hold out."""

from __future__ import annotations

import numpy as np
import pytest
from problems import everything_random

from fedhv import Clients, Problem
from fedhv.problem.holdout import hold_out, with_validation
from fedhv.support.errors import InputError


def test_every_client_is_divided_into_two_parts_that_depend_on_seed_and_client_alone():
    clients = Clients.of([range(10), range(10, 13), [13], range(20, 60)])
    train, out = hold_out(clients, 0.25, seed=3)
    assert [len(each) for each in out] == [2, 1, 0, 10]
    for whole, rest, held in zip(clients, train, out, strict=True):
        assert sorted([*rest, *held]) == list(whole)
    again = hold_out(Clients.of([range(10), range(10, 13)]), 0.25, seed=3)[1]
    assert [list(each) for each in again] == [list(out[0]), list(out[1])]
    other = hold_out(clients, 0.25, seed=4)[1]
    assert list(other[3]) != list(out[3])


def test_a_share_that_leaves_nothing_to_train_on_is_rejected():
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        hold_out(Clients.of([range(4)]), 1.0)


def test_examples_are_held_out_once():
    problem = with_validation(everything_random(), 0.2, seed=0)
    with pytest.raises(InputError, match="hold out examples already"):
        with_validation(problem, 0.2, seed=0)


def test_a_problem_needs_test_examples_or_held_out_ones():
    problem = everything_random()
    x, y = np.zeros((4, 6), np.float32), [np.zeros(4, np.int64), np.zeros(4, np.int64)]
    with pytest.raises(InputError, match="give `test` or `validation`"):
        Problem.from_clients(problem.model, problem.tasks, [(x, y)])
    made = Problem.from_clients(problem.model, problem.tasks, [(x, y)], validation=0.5)
    assert made.test is None
    assert (len(made.clients[0]), len(made.validation[0])) == (2, 2)
