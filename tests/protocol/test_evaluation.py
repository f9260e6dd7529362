"""The paper's aggregates of an evaluation."""

from __future__ import annotations

import pytest

from fedhv.protocol.evaluation import Evaluation, TaskScore


def evaluation(*losses, reference=3.0):
    return Evaluation.of([TaskScore(f"t{i}", 10.0 * i, loss) for i, loss in enumerate(losses)], reference)


def test_the_aggregates_are_the_papers():
    # accuracies 0, 10, 20; losses 1, 2, 0.5: HV = (3 − 1)(3 − 2)(3 − 0.5) = 5
    result = evaluation(1.0, 2.0, 0.5)
    assert result.mean_accuracy == pytest.approx(10.0)
    assert result.worst_accuracy == 0.0
    assert result.mean_loss == pytest.approx(3.5 / 3)
    assert result.hypervolume == pytest.approx(5.0)


def test_a_task_beyond_the_evaluation_reference_leaves_no_hypervolume():
    # two of them must not multiply to a positive one
    assert evaluation(3.5, 1.0).hypervolume == 0.0
    assert evaluation(3.5, 4.0).hypervolume == 0.0


def test_an_evaluation_is_written_with_its_tasks():
    written = evaluation(1.0, 2.0).as_dict()
    assert written["tasks"] == [
        {"name": "t0", "accuracy": 0.0, "loss": 1.0},
        {"name": "t1", "accuracy": 10.0, "loss": 2.0},
    ]
    assert set(written) == {"mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "tasks"}
