"""Where tasks are judged by metrics, the page and its verdict go by these, not by accuracies."""

from __future__ import annotations

import pytest

from fedhv.report import read_study
from fedhv.report.payload import payload
from fedhv.report.verdict import highlights, verdicts

from .judged import mixed_metrics, same_metric
from .studies import write_study


def setting_of(folder):
    return read_study([folder]).settings[0]


def test_a_common_metric_gives_the_worst_task(tmp_path):
    (verdict,) = verdicts(setting_of(same_metric(tmp_path)))
    assert verdict["text"].startswith("FedHV's worst task is 0.1")
    assert " better than Uniform's in auroc (95 % interval 0." in verdict["text"]
    assert "points" not in verdict["text"]
    titles = [tile["title"] for tile in highlights(setting_of(tmp_path))]
    assert titles == ["Mean auroc", "Worst-task auroc", "Mean loss", "Hypervolume"]


def test_a_lower_error_is_better(tmp_path):
    setting = setting_of(same_metric(tmp_path, lower=True))
    (verdict,) = verdicts(setting)
    assert " better than Uniform's in mae" in verdict["text"]
    tiles = {tile["title"]: tile for tile in highlights(setting)}
    assert (tiles["Worst-task mae"]["word"], tiles["Worst-task mae"]["label"]) == ("Lowest", "FedHV")
    run = payload(read_study([tmp_path]))["settings"][0]["runs"][0]
    assert run["worst_main"] == [max(each) for each in zip(*run["main"], strict=True)]


def test_one_seed_has_no_interval(tmp_path):
    (verdict,) = verdicts(setting_of(same_metric(tmp_path / "same", seeds=(0,))))
    assert " better than Uniform's in auroc. One seed has no interval" in verdict["text"]
    (verdict,) = verdicts(setting_of(mixed_metrics(tmp_path / "mixed", seeds=(0,))))
    assert "FedHV is ahead of Uniform in 3 of 3 tasks. One seed has no interval" in verdict["text"]


def test_different_metrics_are_counted_by_task(tmp_path):
    setting = setting_of(mixed_metrics(tmp_path))
    (verdict,) = verdicts(setting)
    assert verdict["text"] == (
        "By the tasks' main metrics FedHV is clearly better than Uniform in 3 of 3 tasks (mass, age, type) and clearly "
        "worse in none (95 % intervals, 3 seeds)."
    )
    assert [tile["title"] for tile in highlights(setting)] == ["Mean loss", "Hypervolume"]


def test_the_page_has_names_directions_and_values(tmp_path):
    (setting,) = payload(read_study([mixed_metrics(tmp_path)]))["settings"]
    assert [(each["name"], each["higher"]) for each in setting["mains"]] == [
        ("rmse", False), ("r2", True), ("accuracy", True)
    ]  # fmt: skip
    run = setting["runs"][0]
    assert run["main"][0] == pytest.approx([40 * loss for loss in run["loss"][0]], rel=1e-3)
    assert run["main"][2] == run["accuracy"][2]
    assert "worst_main" not in run  # errors and scores have no worst one among them


def test_accuracies_are_sent_once(tmp_path):
    (setting,) = payload(read_study([write_study(tmp_path)]))["settings"]
    assert setting["mains"] is None
    assert "main" not in setting["runs"][0]
