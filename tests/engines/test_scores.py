"""Scores are shares: others are refused, and those that cannot be compared are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import everything_random

import fedhv
from fedhv import InputError
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.report.summaries import comparison_table, evaluation_table, summary_table


def scored(score):
    problem = everything_random()
    first, *others = problem.tasks
    return replace(problem, tasks=(replace(first, score=score), *others))


@pytest.mark.parametrize("value", [10.03, -0.5])
def test_a_score_that_is_no_share_is_refused_before_the_run(value, tmp_path):
    with pytest.raises(InputError, match=rf"should be in \[0, 1\].*Found {value:.4g}\. Return a share"):
        fedhv.run(scored(lambda outputs, targets: torch.full((len(targets),), value)), "uniform", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_score_that_leaves_the_interval_later_is_refused_when_it_is_seen():
    def score(outputs, targets):  # two examples, as the check before a run has, are within the interval
        return torch.full((len(targets),), 0.5 if len(targets) <= 2 else 10.0)

    with pytest.raises(InputError, match="score of task 'colour' should be in"):
        fedhv.run(scored(score), "uniform", rounds=1, engine="sequential")


def test_scores_that_count_different_things_are_named():
    same = Evaluation.of([TaskScore("a", 50.0, 1.0), TaskScore("b", 60.0, 1.0)])
    assert same.mixed == ""
    assert "scored" not in same.as_dict()["tasks"][0]
    mixed = Evaluation.of([TaskScore("a", 50.0, 1.0), TaskScore("b", 60.0, 1.0, scored="share within 0.5")])
    said = "MeanAcc and WorstAcc are over scores that cannot be compared: a accuracy, b share within 0.5."
    assert mixed.mixed == said
    assert mixed.as_dict()["tasks"][1]["scored"] == "share within 0.5"
    assert evaluation_table(mixed, "t").caption == said
    assert fedhv.regression("stay", 0.5).scored == "share within 0.5"


def test_tables_say_where_scores_cannot_be_compared(tmp_path):
    problem = everything_random()
    first, *others = problem.tasks
    problem = replace(problem, tasks=(replace(first, scored="share within 2"), *others))
    study = fedhv.compare(problem, ["uniform"], [0], rounds=1, out=tmp_path / "s", engine="sequential", quiet=True)
    said = "over scores that cannot be compared: colour share within 2"
    assert said in summary_table(study[0].summary).caption
    assert said in comparison_table([study[0].summary], 160).caption
    study.report(figures=False)
    assert said in (tmp_path / "s" / "report" / "tables" / "main.md").read_text()


def test_tables_by_main_metrics_say_nothing_of_columns_that_they_lack():
    problem = everything_random()
    first, *others = problem.tasks
    judged = replace(first, scored="share within 2", metrics=fedhv.classification("colour", 3, metrics=["f1"]).metrics)
    run = fedhv.run(replace(problem, tasks=(judged, *others)), "uniform", rounds=1, engine="sequential", quiet=True)
    table = comparison_table([run.summary], 160)
    assert "MeanAcc ↑" not in [column.header for column in table.columns]
    assert "MeanAcc" not in table.caption
