"""Label skew: worked by hand, and the expected value of a random draw by simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedhv import Clients, Examples, Problem, classification, multilabel, regression
from fedhv.problem.skew import label_skew

A_OR_B = classification("a", 2)


def problem(labels, clients, task=A_OR_B, labelled=None):
    examples = Examples.of(torch.zeros(len(labels), 1), [np.asarray(labels)], labelled)

    def model():
        return nn.ModuleList([nn.Linear(1, 2)])

    return Problem("skewed", model, (task,), examples, examples, clients=Clients.of(clients))


def test_the_skew_is_the_mean_distance_from_the_labels_of_all_clients():
    # All together: half a, half b. Client 0 has a and a, distance 1/2; client 1 has a, b, b, b: distance 1/4.
    (skew,) = label_skew(problem([0, 0, 0, 1, 1, 1], [[0, 1], [2, 3, 4, 5]]))
    assert skew.found == (1 / 2 + 1 / 4) / 2
    # Two fair coins: E|X − 1| / 2 = 1/4; four: E|X − 2| / 4 = 3/16.
    assert skew.random == pytest.approx((1 / 4 + 3 / 16) / 2, abs=1e-4)


def test_clients_with_equal_shares_have_no_skew():
    (skew,) = label_skew(problem([0, 1, 0, 1], [[0, 1], [2, 3]]))
    assert skew.found == 0 < skew.random


def test_random_clients_have_the_skew_of_a_random_draw():
    draws = np.random.default_rng(0)
    labels = draws.choice(5, 40_000, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    (skew,) = label_skew(problem(labels, np.split(draws.permutation(40_000)[:20_000], 400), classification("a", 5)))
    assert skew.found == pytest.approx(skew.random, rel=0.03)


def test_missing_labels_are_not_counted():
    there = [True, True, False, False, True, True]
    (skew,) = label_skew(problem([0, 1, 0, 0, 0, 1], [[0, 1, 2, 3], [4, 5]], labelled=[there]))
    assert skew.found == 0


def test_a_task_of_several_labels_has_the_mean_of_its_columns():
    # Column 0 is the same at both clients; column 1 differs completely: distance 1/2 from the common half.
    (skew,) = label_skew(problem([[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 1], [2, 3]], multilabel("a", 2)))
    assert skew.found == pytest.approx((0 + 1 / 2) / 2)


def test_a_column_without_labels_does_not_count():
    labels = [[0, np.nan], [0, np.nan], [1, np.nan], [1, np.nan]]
    (skew,) = label_skew(problem(labels, [[0, 1], [2, 3]], multilabel("a", 2)))
    assert skew == label_skew(problem([[0], [0], [1], [1]], [[0, 1], [2, 3]], multilabel("a", 1)))[0]


def test_numbers_are_counted_in_bins():
    ordered = np.arange(100, dtype=np.float32)
    (skew,) = label_skew(problem(ordered, [range(50), range(50, 100)], regression("a", 1.0)))
    assert skew.found == pytest.approx(1 / 2)
