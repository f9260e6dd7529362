"""Ablations are recognised from what the configurations of runs have in common."""

from __future__ import annotations

from fedhv.report import read_study, tables
from fedhv.report.variants import factor
from report.studies import write_run, write_study


def test_a_star_of_variations_has_its_centre_as_default(tmp_path):
    for steps in (1, 5, 10, 20):
        write_study(tmp_path / f"K{steps}", ("fedhv",), local_steps=steps)
    for participants in (5, 20):
        write_study(tmp_path / f"M{participants}", ("fedhv",), participants=participants)
    for budget in (1, 2):
        write_study(tmp_path / f"B{budget}", ("fedhv",), parameters={"report": budget})
    write_study(tmp_path / "others", ("uniform", "fedcmoo"))
    (setting,) = read_study([tmp_path]).settings
    assert [group.label for group in setting.groups] == ["Uniform", "FedCMOO", "FedHV"]
    found = {sweep.factor.symbol: sweep.values for sweep in setting.sweeps}
    assert found == {"B_rep": (1, 2, "all"), "M": (5, 6, 20), "K": (1, 5, 10, 20)}
    assert list(found) == ["B_rep", "M", "K"]  # the paper's order
    assert all(len(group.runs) == 2 for sweep in setting.sweeps for group in sweep.groups)


def test_a_single_sweep_takes_the_shipped_value_as_default(tmp_path):
    for steps in (20, 10, 5):
        write_run(tmp_path / f"K{steps}", local_steps=steps)
    (setting,) = read_study([tmp_path]).settings
    assert [group.label for group in setting.groups] == ["FedHV"]
    assert setting.groups[0].runs[0].record.config["setting"]["training"]["local_steps"] == 10


def test_two_differences_at_once_are_compared_rather_than_swept(tmp_path):
    write_run(tmp_path / "default")
    write_run(tmp_path / "other", seed=42)
    write_run(tmp_path / "both", local_steps=5, participants=3)
    (setting,) = read_study([tmp_path]).settings
    assert [group.label for group in setting.groups] == ["FedHV", "FedHV (M = 3, K = 5)"]
    assert setting.sweeps == ()


def test_a_method_without_default_run_is_compared_with_all_its_variants(tmp_path):
    write_study(tmp_path / "rest", ("uniform", "fsmgda"))
    write_run(tmp_path / "a", local_steps=5)
    write_run(tmp_path / "b", local_steps=20)
    (setting,) = read_study([tmp_path]).settings
    assert [group.label for group in setting.groups] == ["Uniform", "FSMGDA", "FedHV (K = 5)", "FedHV (K = 20)"]
    assert [sweep.values for sweep in setting.sweeps] == [(5, 20)]


def test_evaluations_make_no_variant(tmp_path):
    write_run(tmp_path / "a", every=4)
    write_run(tmp_path / "b", every=2, seed=42)
    (setting,) = read_study([tmp_path]).settings
    assert [len(group.runs) for group in setting.groups] == [2]


def test_runs_of_another_length_are_a_variant_and_not_averaged(tmp_path):
    write_study(tmp_path, ("uniform", "fedhv"), rounds=12)
    write_run(tmp_path / "long", seed=7, rounds=40)
    write_run(tmp_path / "going", seed=8, rounds=40, done=12)  # planned rounds count, not those done
    write_run(tmp_path / "begun", seed=9, rounds=12, done=4)
    study = read_study([tmp_path])
    (setting,) = study.settings
    found = {group.label: [run.seed for run in group.runs] for group in setting.all_groups}
    assert found == {"Uniform": [0, 42], "FedHV": [0, 9, 42], "FedHV (T = 40)": [7, 8]}
    main = tables(study)[0]
    assert [(row[1].text, row[-1].text) for row in main.rows] == [("Uniform", "2"), ("FedHV", "2")]
    (sweep,) = setting.sweeps
    assert (sweep.factor.title, sweep.values) == ("Rounds", (12, 40))
    assert not any("different numbers of rounds" in note for note in study.notes)  # the ablation says it


def test_in_doubt_the_longer_runs_are_compared(tmp_path):
    for rounds in (4, 12, 8):
        write_study(tmp_path / str(rounds), ("uniform", "fedhv"), rounds=rounds)
    (setting,) = read_study([tmp_path]).settings
    assert [(group.label, group.runs[0].planned) for group in setting.groups] == [("Uniform", 12), ("FedHV", 12)]


def test_methods_of_different_lengths_are_labelled_so(tmp_path):
    write_study(tmp_path / "a", ("uniform", "fsmgda"), rounds=12)
    write_study(tmp_path / "b", ("fedhv",), rounds=20)
    study = read_study([tmp_path])
    assert [group.label for group in study.settings[0].groups] == ["Uniform", "FSMGDA", "FedHV (T = 20)"]
    lengths = "runs that are compared have different numbers of rounds: 12, 20"
    assert study.notes == (f"digits: {lengths}",)


def test_whole_and_decimal_numbers_are_the_same_value(tmp_path):
    write_run(tmp_path / "a", parameters={"server_lr": 1})
    write_run(tmp_path / "b", parameters={"server_lr": 1.0}, seed=42)
    assert len(read_study([tmp_path]).settings[0].groups) == 1


def test_hyper_parameters_of_other_methods_keep_their_own_names():
    assert factor("methods.mine.report").symbol == "B_rep"
    assert factor("methods.mine.inner_steps").title == "Inner steps"
    assert factor("methods.mine.a_b").latex == r"\text{a\_b}"
    assert factor("federation.samples_per_client").title == "Samples per client"


def test_private_reports_make_another_run_and_none_is_the_default(tmp_path):
    write_study(tmp_path / "open", ("fedhv",))
    write_study(tmp_path / "private", ("fedhv",), reports={"clip": 3.0, "noise": 5.0})
    write_run(tmp_path / "said", seed=7, reports={"clip": 0.0, "noise": 0.0})  # the same as saying nothing
    study = read_study([tmp_path])
    (setting,) = study.settings
    found = {group.label: [run.seed for run in group.runs] for group in setting.groups}
    assert found == {"FedHV": [0, 7, 42], "FedHV (C = 3, z = 5)": [0, 42]}
    assert not any("left out" in note for note in study.notes)


def test_rates_that_agree_to_six_digits_are_two_variants(tmp_path):
    rates = (0.3, 0.1234567, 0.12345674)
    for i, rate in enumerate(rates):
        write_study(tmp_path / str(i), ("fedhv",), parameters={"local_lr": rate})
    (setting,) = read_study([tmp_path]).settings
    (sweep,) = setting.sweeps
    assert sweep.values == tuple(sorted(rates))
    assert [group.label for group in sweep.groups[:2]] == ["FedHV (η_ℓ = 0.1234567)", "FedHV (η_ℓ = 0.12345674)"]
    assert all(len(group.runs) == 2 for group in sweep.groups)


def test_a_variant_is_one_however_its_number_is_written(tmp_path):
    write_study(tmp_path / "default", ("fedhv",), (0, 1, 2))
    write_run(tmp_path / "whole", parameters={"server_lr": 1_000_000})
    write_run(tmp_path / "decimal", parameters={"server_lr": 1e6}, seed=1)
    (setting,) = read_study([tmp_path]).settings
    assert sorted(len(group.runs) for group in setting.all_groups) == [2, 3]
