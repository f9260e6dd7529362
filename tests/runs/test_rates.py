"""A comparison over several learning rates: one calibration, the best of each method, and how it was chosen."""

import pytest
from mixed import CHANGES, mixed
from observers import Watch

from fedhv import InputError, compare


def test_the_reference_is_calibrated_once_and_each_method_is_shown_at_its_best_rate(setting_file, tmp_path):
    watch, rates = Watch(), [0.0001, 0.2]
    found = compare(
        str(setting_file), ["uniform", "fedhv"], [0, 1], local_lrs=rates, rounds=3, out=tmp_path, jobs=1, observer=watch
    )
    assert sum("Calibrating" in text for text in watch.said) == 1
    assert len(list(tmp_path.glob("*/*/summary.json"))) == 2 * 2 * 2 + 1  # and the calibration's
    assert [(run.method, run.seed) for run in found] == [("uniform", 0), ("fedhv", 0), ("uniform", 1), ("fedhv", 1)]
    for method in ("uniform", "fedhv"):
        (rate,) = {run.parameters["local_lr"] for run in found if run.method == method}
        others = [
            [compare_one(tmp_path, method, each, seed).mean_accuracy for seed in (0, 1)] for each in (0.0001, 0.2)
        ]
        best = max(range(2), key=lambda i: sum(others[i]))
        assert rate == rates[best]
    assert "chosen on the test examples themselves" in found.how
    assert "chosen on" in found.table(200)


def compare_one(folder, method, rate, seed):
    from fedhv import read_run

    return read_run(folder / f"{method}-local_lr-{rate:g}" / f"{method}-seed{seed}").summary


def test_with_held_out_examples_rates_are_chosen_on_them(setting_file):
    found = compare(
        str(setting_file), ["uniform"], [0], local_lrs=[0.01, 0.2], rounds=2, jobs=1, validation=0.4, quiet=True
    )
    assert "chosen on the examples that clients hold out" in found.how
    assert len(found) == 1


@pytest.mark.parametrize("validation", [0.3, 0.0])
def test_rates_are_chosen_by_the_tasks_main_metrics(validation):
    """With the larger rate ROC-AUC and RMSE improve, and MeanAcc does not."""
    found = compare(
        mixed(), ["uniform"], [0], local_lrs=[1e-6, 0.01], rounds=8, jobs=1, quiet=True,
        override=[*CHANGES, f"federation.validation={validation}"],
    )  # fmt: skip
    (run,) = found
    assert run.parameters["local_lr"] == 0.01
    assert "the best mean of the tasks' main metrics (roc_auc, rmse)" in found.how


def test_rates_are_positive_and_distinct(setting_file):
    with pytest.raises(InputError, match="`local_lrs` should be positive"):
        compare(str(setting_file), ["uniform"], [0], local_lrs=[0.1, 0.1])
