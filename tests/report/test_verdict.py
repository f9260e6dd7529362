"""The verdict and the tiles: intervals decide, a tie is not crowned, one seed decides nothing."""

from __future__ import annotations

import pytest

from fedhv.report import read_study
from fedhv.report.ranking import BEST, LEVEL, standing, verdict
from fedhv.report.verdict import highlights, verdicts
from report.studies import write_fixed, write_run


def write_pairs(folder, fedhv, uniform):
    """Two methods with three seeds; each has (clear, faint) accuracies for every seed."""
    for method, runs in (("fedhv", fedhv), ("uniform", uniform)):
        for seed, pair in enumerate(runs):
            write_fixed(folder / f"{method}-seed{seed}", method, seed, pair, [1 - value / 100 for value in pair])
    return read_study([folder]).settings[0]


@pytest.fixture
def clear(tmp_path):
    return write_pairs(tmp_path, [(90, 80), (91, 81.2), (90.5, 80.4)], [(91.2, 78), (92.4, 79.3), (91.8, 78.6)])


def test_a_clear_difference_is_stated_with_its_interval_and_who_pays(clear):
    (verdict,) = verdicts(clear)
    assert verdict["against"] == "Uniform"
    # Differences of the worst task 2.0, 1.9, 1.8: 1.9 ± 4.303 · 0.1/√3; of the other −1.2, −1.4, −1.3.
    assert verdict["text"] == (
        "FedHV's worst task is 1.9 points better than Uniform's (95 % interval 1.7 to 2.1, 3 seeds); "
        "clear pays 1.3 (1.1 to 1.5)."
    )


def test_a_difference_that_seeds_explain_is_level(tmp_path):
    setting = write_pairs(tmp_path, [(90, 80), (91, 78), (90, 81)], [(90, 79), (91, 80), (90, 79.5)])
    (verdict,) = verdicts(setting)
    assert "is level with Uniform's" in verdict["text"]
    assert "no task is clearly worse" in verdict["text"]
    worst = next(tile for tile in highlights(setting) if tile["title"] == "Worst-task accuracy")
    assert (worst["label"], worst["clear"]) == ("FedHV", False)
    assert worst["note"].startswith("level with Uniform")


def test_a_small_price_has_two_digits(tmp_path):
    setting = write_pairs(tmp_path, [(90, 80), (91, 81.2), (90.5, 80.4)], [(90.12, 78), (91.1, 79.3), (90.61, 78.6)])
    assert "clear pays 0.11 (0.09 to 0.13)" in verdicts(setting)[0]["text"]


def test_the_best_is_crowned_where_every_interval_excludes_zero(clear):
    tiles = {tile["title"]: tile for tile in highlights(clear)}
    assert tiles["Worst-task accuracy"]["clear"]
    assert tiles["Worst-task accuracy"]["note"] == "ahead of Uniform by 1.65 to 2.15 points"
    assert tiles["Mean loss"]["word"] == "Lowest"


def test_one_seed_crowns_nobody(tmp_path):
    for method in ("fedhv", "uniform"):
        write_run(tmp_path / method, method=method)
    setting = read_study([tmp_path]).settings[0]
    assert not any(tile["clear"] for tile in highlights(setting))
    assert "One seed has no interval" in verdicts(setting)[0]["text"]


def test_one_method_has_no_verdict(tmp_path):
    write_run(tmp_path / "only")
    assert verdicts(read_study([tmp_path]).settings[0]) == []


# Unequal seed sets: the best mean is worse on the seeds that both methods have.
UNEQUAL = {"A": {0: 50.0, 1: 51.0, 2: 90.0}, "B": {0: 60.0, 1: 61.5}}


@pytest.mark.parametrize("higher", [True, False])
def test_a_method_that_is_worse_on_the_common_seeds_is_not_best(higher):
    values = {name: {s: v if higher else -v for s, v in runs.items()} for name, runs in UNEQUAL.items()}
    assert standing(values, higher) == {"A": LEVEL, "B": LEVEL}
    assert verdict(values, higher) == "A has the best mean, but is behind B on the seeds that they share"
    values["A"].pop(2)
    assert standing(values, higher) == {"B": BEST}


def test_a_tile_does_not_call_such_a_method_the_best(tmp_path):
    for method, runs in (("fedhv", UNEQUAL["A"]), ("uniform", UNEQUAL["B"])):
        for seed, value in runs.items():
            pair = (value, value)
            write_fixed(tmp_path / f"{method}-{seed}", method, seed, pair, [1 - value / 100 for value in pair])
    for tile in highlights(read_study([tmp_path]).settings[0]):
        if tile["title"] != "Hypervolume":
            assert (tile["label"], tile["clear"]) == ("FedHV", False)
            assert tile["note"] == "behind Uniform on the seeds that they share"


# C has one seed only: nothing says whether it is level with the best mean.
ONE_SEED = {"A": {0: 90.0, 1: 91.0, 2: 90.5}, "B": {0: 90.1, 1: 90.7, 2: 90.5}, "C": {0: 20.0}}


def test_a_method_without_an_interval_is_not_called_level():
    assert standing(ONE_SEED, True) == {"A": LEVEL, "B": LEVEL}
    assert verdict(ONE_SEED, True) == "A is level with B; it shares fewer than two seeds with C"
    clear = ONE_SEED | {"B": {0: 80.0, 1: 81.1, 2: 80.4}}
    assert standing(clear, True) == {"A": LEVEL}
    assert verdict(clear, True) == "A has the best mean, but it shares fewer than two seeds with C"


def test_a_tile_names_the_methods_without_an_interval(tmp_path):
    for method, runs in zip(("fedhv", "uniform", "power"), ONE_SEED.values(), strict=True):
        for seed, value in runs.items():
            pair = (value, value)
            write_fixed(tmp_path / f"{method}-{seed}", method, seed, pair, [1 - value / 100 for value in pair])
    tiles = {tile["title"]: tile for tile in highlights(read_study([tmp_path]).settings[0])}
    note = "level with Uniform: 95 % intervals of the differences contain 0; no interval against power: fewer than two"
    assert tiles["Mean accuracy"]["note"].startswith(note)


def test_one_seed_in_common_is_compared_on_that_seed(tmp_path):
    for method, seed, value in (("fedhv", 0, 10.0), ("fedhv", 1, 60.0), ("uniform", 1, 58.0)):
        write_fixed(tmp_path / f"{method}-{seed}", method, seed, (value, value), [1.0, 1.0])
    (said,) = verdicts(read_study([tmp_path]).settings[0])
    assert said["text"].startswith("FedHV's worst task is 2.0 points above Uniform's. One seed has no interval")
