"""Evaluation at the clients: the same on every engine, and enough where nobody has test examples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import everything_random

import fedhv
from fedhv import FedHV
from fedhv.problem.holdout import with_validation
from fedhv.runs.record import read_run

OVERRIDE = ["training.rounds=4", "training.batch_size=8", "training.local_steps=2", "federation.participants=3"]
METHOD = FedHV(reference=(9.0, 9.0))


def run(problem, **options):
    return fedhv.run(problem, METHOD, override=[*OVERRIDE, "evaluation.every=2"], **options)


@pytest.mark.parametrize("engine", ["parallel", "stacked"])
def test_engines_agree_on_what_clients_find(engine):
    problem = with_validation(everything_random(), 0.25, seed=1)
    here, there = (run(problem, engine=name).history for name in ("sequential", engine))
    assert ["validation" in record for record in here] == [False, True, False, True]
    for a, b in zip(here[1::2], there[1::2], strict=True):
        assert a["validation"]["clients"]["client"] == list(range(len(problem.clients)))
        assert a["validation"]["clients"]["labels"] == b["validation"]["clients"]["labels"]
        assert a["validation"]["mean_loss"] == pytest.approx(b["validation"]["mean_loss"], rel=1e-4)


def test_overall_is_the_evaluation_of_all_held_out_examples_together():
    problem = with_validation(everything_random(), 0.25, seed=1)
    together = replace(problem, test=problem.train[problem.validation.indices])
    result = run(together, engine="sequential")
    record = result.history[-1]
    assert record["validation"]["mean_loss"] == pytest.approx(result.mean_loss, rel=1e-5)
    for mine, tested in zip(record["validation"]["tasks"], result.tasks, strict=True):
        assert mine["accuracy"] == pytest.approx(tested.accuracy, abs=1e-3)
    counted = [sum(row[i] for row in record["validation"]["clients"]["labels"]) for i in range(2)]
    assert counted == [len(problem.validation.indices)] * 2


def test_without_test_examples_the_clients_evaluation_is_the_runs(tmp_path):
    problem = replace(with_validation(everything_random(), 0.25, seed=1), test=None)
    result = run(problem, engine="sequential", out=tmp_path / "run")
    final = result.history[-1]
    assert final["evaluation"]["mean_accuracy"] == final["validation"]["mean_accuracy"]
    assert read_run(tmp_path / "run").summary.mean_loss == final["validation"]["mean_loss"]


def test_a_setting_holds_out_a_share_and_the_rest_of_the_run_counts_no_bytes_for_it():
    held = fedhv.run("digits", METHOD, rounds=1, override=["federation.validation=0.2"])
    plain = fedhv.run("digits", METHOD, rounds=1)
    assert held.history[0]["uplink_bytes"] == plain.history[0]["uplink_bytes"]
    validation = held.history[0]["validation"]
    assert validation["uplink_bytes"] == 4 * 3 * 2 * len(validation["clients"]["client"])
    assert "validation" not in plain.history[0]


def test_a_history_says_who_took_part_where_that_is_asked_for():
    override = [*OVERRIDE, "record.cohort=true", "faults.drop_out=0.4"]
    history = fedhv.run(everything_random(), METHOD, override=override, seed=2).history
    assert any("refused" in record for record in history)
    for record in history:
        cohort = record["cohort"]
        assert cohort["present"] == 5
        out = {refusal["client"] for refusal in record.get("refused", ())}
        if "attempts" not in record:
            assert cohort["taken"] == [k for k in cohort["asked"] if k not in out]
        assert len(cohort["norms"]) == len(cohort["taken"])
        assert min(cohort["norms"]) > 0


def test_small_cohorts_are_recorded_without_being_asked_for_and_change_no_number(monkeypatch):
    runs = [
        fedhv.run(everything_random(), METHOD, override=[*OVERRIDE, *more], seed=2)
        for more in ([], ["record.cohort=false"])
    ]
    assert [set(a) - set(b) for a, b in zip(runs[0].history, runs[1].history, strict=True)] == [{"cohort"}] * len(
        runs[0].history
    )
    assert all(torch.equal(value, runs[1].state_dict[name]) for name, value in runs[0].state_dict.items())
    monkeypatch.setattr("fedhv.simulation.plan.LISTED", 1)
    assert "cohort" not in fedhv.run(everything_random(), METHOD, override=OVERRIDE, seed=2).history[0]
