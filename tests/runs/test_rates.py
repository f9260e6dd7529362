"""A comparison over several learning rates: one calibration, the best of each method, and how it was chosen."""

import pytest
from mixed import CHANGES, mixed
from observers import Watch

from fedhv import Diverged, InputError, StudyFailed, Uniform, compare, read_run
from fedhv.methods import METHODS
from fedhv.runs.rates import at_rates
from fedhv.runs.rates_file import read_rates


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
    written = read_rates(tmp_path)
    assert written == found.rates
    assert {name: each.rate for name, each in written.items()} == {
        run.method: run.parameters["local_lr"] for run in found
    }
    assert all((tmp_path / tried.folder).is_dir() for each in written.values() for tried in each.tried)
    assert found.as_dicts()[0]["rates"]["tried"][1]["local_lr"] == 0.2


def compare_one(folder, method, rate, seed):
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


HOW = {"rounds": 2, "jobs": 1, "quiet": True}


def test_a_rate_that_diverges_is_not_chosen_and_is_named(setting_file, tmp_path):
    found = compare(str(setting_file), ["uniform", "stch"], [0, 1], local_lrs=[1e30, 0.1], out=tmp_path, **HOW)
    assert {run.parameters["local_lr"] for run in found} == {0.1}
    assert len(found) == 4
    assert "Diverged: uniform 1e+30; stch 1e+30." in found.how
    assert [each.score is None for each in read_rates(tmp_path)["stch"].tried] == [True, False]


def test_without_a_rate_that_has_all_seeds_the_error_names_the_methods(setting_file):
    with pytest.raises(Diverged, match=r"every local learning rate \(1e\+30, 1e\+31\) a run of uniform diverged"):
        compare(str(setting_file), ["uniform"], [0], local_lrs=[1e30, 1e31], **HOW)


def test_a_run_that_fails_for_another_reason_ends_the_comparison(setting_file, tmp_path):
    from fedhv import FedHVError, Uniform

    class Broken(Uniform):
        name = "broken"

        def round(self, state):
            raise FedHVError("no space")

    with pytest.raises(StudyFailed, match="no space"):
        compare(str(setting_file), [Broken(), "uniform"], [0], local_lrs=[0.1], **HOW)


def test_rates_that_tie_are_named(setting_file):
    found = compare(str(setting_file), ["uniform"], [0], local_lrs=[1e-9, 2e-9], **HOW)
    assert "Equal scores, of which the first is taken: uniform 1e-09, 2e-09." in found.how


def test_baselines_have_one_rate_and_are_kept(setting_file):
    found = compare(str(setting_file), ["uniform"], [0], local_lrs=[0.1, 0.2], baselines=["pooled"], **HOW)
    assert [run.method for run in found] == ["uniform", "pooled"]
    assert "pooled" not in found.how


def test_baselines_of_ones_own_problem_have_the_first_methods_usual_rate():
    found = compare(mixed(), [Uniform(local_lr=0.05)], [0], local_lrs=[0.1, 0.2], baselines=["pooled"], **HOW)
    assert found[-1].parameters["local_lr"] == 0.05


def test_rates_that_agree_to_six_digits_have_folders_of_their_own():
    found = at_rates([METHODS["uniform"]()], [0.1, 0.10000001, 1.0])
    assert [each.name for each in found] == [f"uniform-local_lr-{rate}" for rate in ("0.1", "0.10000001", "1")]


def test_the_command_prints_no_table_that_pools_rates(command, setting_file):
    arguments = ("compare", str(setting_file), "--methods", "uniform", "--seeds", "0,1", "--rounds", 1, "--jobs", 1)
    done = command(*arguments, "--local-lr", "1e30,1e31")
    assert (done.code, done.out) == (1, "")
    assert "a run of uniform diverged" in done.err


def test_a_choice_on_the_held_out_examples_that_are_shown_says_so(setting_file):
    held = ["federation.validation=0.3", "evaluation.on=validation"]
    found = compare(str(setting_file), ["uniform"], [0], local_lrs=[0.1, 0.2], override=held, **HOW)
    assert "chosen on the examples that clients hold out, which makes their scores here optimistic" in found.how
