"""Replies that are compared with each other: outliers and robust means."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from problems import everything_random

from fedhv import FSMGDA, FedHV, LocalTraining, Uniform
from fedhv.engines.registry import ENGINES
from fedhv.protocol.comparing import robust_mean
from fedhv.protocol.faults import Faults
from fedhv.protocol.screening import Screening
from fedhv.simulation.rounds import Plan, simulate
from fedhv.support.errors import InputError

PLAN = Plan(3, 5, LocalTraining(2, 8, 0.1), evaluate_every=0, seed=2)


def with_one(faults):
    """A seed with which exactly one of the five clients is faulty."""
    return next(s for s in range(1000) if sum(faults.of(s, 0, k, 0) is not None for k in range(5)) == 1)


def played(method=None, engine="sequential", **changes):
    with ENGINES[engine](everything_random()) as made:
        return list(simulate(made, method or FedHV(reference=(9.0, 9.0)), replace(PLAN, **changes)))


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
@pytest.mark.parametrize("method", [FedHV(reference=(9.0, 9.0)), FSMGDA()], ids=lambda method: method.label)
def test_a_bound_relative_to_the_cohort_changes_no_bit_of_an_honest_run(engine, method):
    plain = played(method, engine)[-1].state.model
    guarded = played(method, engine, screening=Screening(outlier=10.0, report_outlier=10.0))[-1].state.model
    assert torch.equal(plain, guarded)


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
def test_an_update_that_is_a_thousand_times_too_long_is_refused_and_the_model_stays_near(engine):
    faults = Faults(absurd=0.2, scale=1000.0, pattern="same")
    seed = with_one(faults)
    guarded = played(engine=engine, faults=faults, seed=seed, screening=Screening(outlier=10.0))
    refused = [refusal for each in guarded for refusal in each.refused]
    assert refused
    assert all("times the cohort's median" in refusal.reason for refusal in refused)
    poisoned = played(engine=engine, faults=faults, seed=seed)[-1].state.model
    assert float(guarded[-1].state.model.norm()) < 0.1 * float(poisoned.norm())


def test_a_loss_far_from_all_others_is_refused():
    faults = Faults(false_report=0.2, claim=1e6, pattern="same")
    guarded = played(faults=faults, seed=with_one(faults), screening=Screening(report_outlier=10.0))
    assert any("a reported loss of 1e+06" in refusal.reason for each in guarded for refusal in each.refused)


@pytest.mark.parametrize("aggregate", ["median", "trimmed"])
def test_robust_aggregation_survives_hostile_updates_and_engines_agree(aggregate):
    rules = Screening(aggregate=aggregate, trim=0.25)
    faults = Faults(absurd=0.2, scale=-1000.0, pattern="same")
    seed = with_one(faults)
    honest = played(Uniform(), screening=rules, seed=seed)[-1].state.model
    attacked = played(Uniform(), screening=rules, faults=faults, seed=seed)[-1].state.model
    assert float((attacked - honest).norm()) < float(honest.norm())
    poisoned = played(Uniform(), faults=faults, seed=seed, screening=Screening(max_jump=1e9))[-1].state.model
    assert float(poisoned.norm()) > 10 * float(honest.norm())
    assert torch.equal(played(Uniform(), "parallel", screening=rules, seed=seed)[-1].state.model, honest)


def test_robust_means_by_hand():
    stack = torch.tensor([[1.0, 5.0], [2.0, 1e9], [3.0, 7.0], [100.0, 6.0]])
    assert robust_mean(stack, "median", 0).tolist() == [2.5, 6.5]
    assert robust_mean(stack, "trimmed", 0.25).tolist() == [2.5, 6.5]
    assert robust_mean(stack, "trimmed", 0.0).tolist() == stack.mean(dim=0).tolist()


def test_a_coordinate_is_combined_over_the_clients_that_trained_it():
    stack = torch.tensor([[1.0, 5.0], [2.0, 0.0], [3.0, 0.0]])
    there = torch.tensor([[True, True], [True, False], [True, False]])
    assert robust_mean(stack, "median", 0, there).tolist() == [2.0, 5.0]
    nobody = torch.tensor([[True, False]] * 3)
    assert robust_mean(stack, "trimmed", 0.2, nobody).tolist() == [2.0, 0.0]


def test_with_two_replies_there_is_no_majority():
    plan = replace(PLAN, participants=2, screening=Screening(outlier=1.0001))
    with ENGINES["sequential"](everything_random()) as engine:
        assert not any(each.refused for each in simulate(engine, Uniform(), plan))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outlier": 1.0}, "`outlier`"),
        ({"aggregate": "mode"}, "server.aggregate"),
        ({"trim": 0.5}, "server.trim"),
        ({"quorum": 1.5}, "`quorum`"),
        ({"grace": math.inf}, "`grace`"),
    ],
)
def test_rules_that_mean_nothing_are_rejected(changes, words):
    with pytest.raises(InputError, match=words):
        Screening(**changes)


def test_a_quorum_is_a_number_or_a_share():
    assert Screening().enough(10) is None
    assert Screening(quorum=3).enough(10) == 3
    assert Screening(quorum=0.5).enough(5) == 3
    assert Screening(quorum=3).enough(2) == 2
    assert Screening(quorum=0.1, min_replies=4).enough(10) == 4
