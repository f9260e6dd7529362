"""Of a study that searched rates, knobs or preferences, tables compare what was chosen."""

from __future__ import annotations

import json
import shutil

import pytest

from fedhv.report import read_study, tables
from fedhv.report.payload import payload
from fedhv.report.reading import Reader
from fedhv.report.verdict import verdicts
from fedhv.runs.rates_file import ChosenRate, TriedRate, write_rates
from report.studies import write_run, write_study

RATES = (0.1, 0.3, 1.0)


def write_searched(folder, methods=("uniform", "stch")):
    """Two methods, each at three local learning rates, as `compare` with several of them leaves them."""
    for method in methods:
        for rate in RATES:
            write_study(folder / f"{method}-local_lr-{rate:g}", (method,), parameters={"local_lr": rate})


def choose(folder, **chosen):
    how = "the best MeanAcc of 0.1, 0.3, 1 for each method, chosen on held-out examples"
    found = {
        method: ChosenRate(rate, how, tuple(TriedRate(r, f"{method}-local_lr-{r:g}", r) for r in RATES))
        for method, rate in chosen.items()
    }
    write_rates(folder, found)


def main_rows(study):
    return [(row[1].text, row[2].text) for row in tables(study)[0].rows]


def test_main_rows_are_at_the_chosen_rates_and_say_how_these_were_chosen(tmp_path):
    write_searched(tmp_path)
    choose(tmp_path, uniform=1.0, stch=0.3)
    study = read_study([tmp_path])
    assert main_rows(study) == [("Uniform", "1.2/1"), ("stch", "1.2/0.3")]
    made = {table.name: table for table in tables(study)}
    assert [row[1].text for row in made["differences"].rows] == ["stch − Uniform"]
    assert "Local learning rates: uniform 1, stch 0.3; the best MeanAcc" in made["main"].caption
    assert "no tuned rates" not in made["main"].caption
    assert len(made["ablations"].rows) == 6
    assert [each["against"] for each in verdicts(study.settings[0])] == ["Uniform"]
    assert len(payload(study)["settings"][0]["series"]) == 6


def test_without_a_choice_every_rate_is_labelled(tmp_path):
    """For stch no rate is more usual than the others, and the shipped setting has none."""
    write_searched(tmp_path)
    labels = [label for label, _ in main_rows(read_study([tmp_path]))]
    assert labels == ["Uniform", *(f"stch (η_ℓ = {rate:g})" for rate in RATES)]


def test_a_later_choice_keeps_that_of_other_methods_and_is_noticed(tmp_path):
    write_searched(tmp_path)
    choose(tmp_path, uniform=1.0, stch=0.3)
    reader = Reader([tmp_path])
    before = reader.fingerprint()
    read_study([tmp_path], reader)
    choose(tmp_path, stch=0.1)
    assert reader.fingerprint() != before
    assert main_rows(read_study([tmp_path], reader)) == [("Uniform", "1.2/1"), ("stch", "1.2/0.1")]


def test_a_damaged_choice_is_noted_and_nothing_is_left_out(tmp_path):
    write_searched(tmp_path)
    (tmp_path / "rates.json").write_text('{"methods": {"stch": {"local_lr": 7')
    study = read_study([tmp_path])
    assert len(study.runs) == 12
    assert any("rates.json could not be read" in note for note in study.notes)


def test_of_a_tuning_the_chosen_trials_are_compared(tmp_path):
    """Trials differ in several values at once, and most of them end early."""
    trials = []
    for method in ("uniform", "stch"):
        for i, (local, server) in enumerate([(0.3, 1.2), (0.5, 0.8), (0.2, 2.0)]):
            name = f"{method}-{i}"
            write_study(
                tmp_path / name, (method,), (0,), finished=i == 1, done=12 if i == 1 else 4,
                parameters={"local_lr": local, "server_lr": server},
            )  # fmt: skip
            trials.append({"method": method, "name": name, "chosen": i == 1})
    (tmp_path / "tune.json").write_text(json.dumps({"how": "Chosen by MeanAcc.", "trials": trials}))
    study = read_study([tmp_path])
    assert main_rows(study) == [("Uniform", "0.8/0.5"), ("stch", "0.8/0.5")]
    assert "Chosen by MeanAcc." in tables(study)[0].caption
    assert not any("has not finished" in note for note in study.notes)
    assert len(payload(study)["settings"][0]["runs"]) == 6


def test_what_a_search_ended_early_is_in_no_ablation_and_is_not_missing(tmp_path):
    """Its values of fewer rounds were ranked beside those of all rounds."""
    write_searched(tmp_path, ("uniform",))
    given_up = tmp_path / "uniform-local_lr-1"
    shutil.rmtree(given_up)
    for seed in (0, 42):
        write_run(given_up / f"uniform-seed{seed}", method="uniform", seed=seed, parameters={"local_lr": 1.0}, done=4)
    choose(tmp_path, uniform=0.3)
    study = read_study([tmp_path])
    made = {table.name: table for table in tables(study)}
    assert [row[4].text for row in made["ablations"].rows] == ["1.2/0.1", "1.2/0.3"]
    assert not [note for note in study.notes if "finished" in note]
    assert len(payload(study)["settings"][0]["series"]) == 3  # the page has all


def test_points_of_a_front_are_not_compared(tmp_path):
    points = []
    for i in range(3):
        run = f"fixed-preferences-{i}/fixed-seed0"
        write_run(tmp_path / run, method="fixed", parameters={"preferences": [(i + 1) / 4, 1 - (i + 1) / 4]})
        points.append({"run": run})
    write_run(tmp_path / "uniform/uniform-seed0", method="uniform")
    methods = [{"over": "preferences", "points": points}, {"over": None, "points": [{"run": "uniform/uniform-seed0"}]}]
    (tmp_path / "front.json").write_text(json.dumps({"methods": methods}))
    study = read_study([tmp_path])
    assert [label for label, _ in main_rows(study)] == ["Uniform"]
    assert verdicts(study.settings[0]) == []
    assert [group.label for group in study.settings[0].groups] == ["Uniform"]
    made = {table.name: table for table in tables(study)}
    assert [cell.plain for cell in made["front-points"].rows[0]][1:3] == ["fixed", "Preferences"]
    assert "ablations" not in made
    for lr in (0.1, 0.2):  # an ablation beside it stays one
        write_run(tmp_path / f"uniform-{lr}/uniform-seed0", method="uniform", parameters={"local_lr": lr})
    made = {table.name: table for table in tables(read_study([tmp_path]))}
    assert {row[1].plain for row in made["front-points"].rows} == {"fixed"}
    assert {row[1].plain for row in made["ablations"].rows} == {"Uniform"}


def test_a_front_alone_is_no_study_of_one_seed(tmp_path):
    for i in range(2):
        for seed in (0, 1):
            write_run(tmp_path / f"f-{i}/fixed-seed{seed}", method="fixed", seed=seed, parameters={"mu": i})
    points = [{"run": f"f-{i}/fixed-seed{seed}"} for i in range(2) for seed in (0, 1)]
    (tmp_path / "front.json").write_text(json.dumps({"methods": [{"over": "mu", "points": points}]}))
    study = read_study([tmp_path])
    assert study.settings[0].groups == ()
    assert not any("one seed only" in note for note in study.notes)
    assert [table.name for table in tables(study)][:1] == ["front-points"]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_run_beside_a_search_is_compared_with_what_was_chosen(elsewhere, tmp_path):
    """The plain run is labelled with its rate, whether in the folder of the search or in another."""
    write_searched(tmp_path / "search", ("stch",))
    choose(tmp_path / "search", stch=1.0)
    write_run(tmp_path / ("plain" if elsewhere else "search") / "stch-seed7", method="stch", seed=7,
              parameters={"local_lr": 0.7})  # fmt: skip
    labels = {group.label for group in read_study([tmp_path]).settings[0].all_groups}
    assert "stch" in labels
    assert "stch (η_ℓ = 0.7)" in labels
