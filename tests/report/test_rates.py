"""Every comparison shows its learning rates, and its caption says where they differ."""

from fedhv.report.rates import group_rates, pair_text, rates_sentence, setting_sentence, study_sentence
from fedhv.report.study import read_study

from .studies import write_study

TUNED, OTHER = {"server_lr": 1.2, "local_lr": 0.3}, {"server_lr": 1.0, "local_lr": 0.1}


def test_equal_rates_need_no_sentence(tmp_path):
    study = read_study([write_study(tmp_path / "s")])
    assert [group_rates(group) for group in study.settings[0].groups] == ["1.2/0.3", "1.2/0.3"]
    assert study_sentence(study) == ""


def test_unequal_rates_are_said(tmp_path):
    write_study(tmp_path / "s", ["fedhv"], parameters=TUNED)
    study = read_study([write_study(tmp_path / "s", ["uniform"], parameters=OTHER)])
    said = setting_sentence(study.settings[0])
    assert "Learning rates η_g/η_ℓ differ: Uniform 1/0.1, FedHV 1.2/0.3." in said
    assert study_sentence(study) == said


def test_a_method_without_tuned_rates_is_named(tmp_path):
    study = read_study([write_study(tmp_path / "s", ["fedhv", "mine"])])
    assert study_sentence(study) == "mine has no tuned rates here."
    other = read_study([write_study(tmp_path / "t", ["fedhv", "mine"], setting="hospital")])
    assert study_sentence(other) == ""  # nothing is known of a setting of one's own


def test_rates_that_were_given_or_that_a_setting_has_for_a_baseline_are_not_called_untuned(tmp_path):
    """`fedhv tune` writes a setting of the same name, with rates for methods that the shipped one has none for."""
    write_study(tmp_path / "s", ["fedhv"], parameters=TUNED, setting="digits")
    write_study(tmp_path / "s", ["stch"], parameters={"server_lr": 0.95, "local_lr": 0.31}, setting="digits")
    assert "tuned rates" not in study_sentence(read_study([tmp_path / "s"]))
    write_study(tmp_path / "star", ["fedhv", "single-task"], parameters=TUNED, setting="star")
    assert "tuned rates" not in study_sentence(read_study([tmp_path / "star"]))


def test_settings_are_named_where_there_are_several(tmp_path):
    for setting, rates in (("digits", OTHER), ("other", TUNED)):
        write_study(tmp_path / setting, ["fedhv"], parameters=TUNED, setting=setting)
        write_study(tmp_path / setting, ["uniform"], parameters=rates, setting=setting)
    assert "differ between methods in digits (see the table" in study_sentence(read_study([tmp_path]))


def test_many_methods_are_grouped_by_their_rates():
    rates = dict.fromkeys("abcdef", "1.2/0.3") | {"Uniform": "1/0.3"}
    said = rates_sentence(rates, [*"abcdef", "x"])
    assert said == (
        "Learning rates η_g/η_ℓ differ: 1.2/0.3 for a, b, c, d, e, f; 1/0.3 for Uniform. A difference between methods "
        "may be one of their rates. Only Uniform has tuned rates here."
    )


def test_a_sentence_names_what_it_knows():
    assert rates_sentence({}) == ""
    assert pair_text(None) == "–"
    assert pair_text((1.0, 0.05)) == "1/0.05"


def test_a_rate_that_was_divided_by_the_number_of_tasks_has_four_digits():
    assert pair_text((1.0, 0.1 / 3)) == "1/0.03333"
    assert pair_text((1.0, 1e-9)) == "1/1e-09"
