"""The paper's numbers: complete, consistent with one another, and what the settings say."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fedhv.benchmarks.celeba5 import GROUPS
from fedhv.paper import published
from fedhv.paper.comparison import paper_ranks
from fedhv.paper.experiments import ABLATED, SWEEPS, TWO_TASKS
from fedhv.paper.plan import METHODS, SETTINGS
from fedhv.paper.published import Printed, results
from fedhv.runs.config import load_setting
from fedhv.runs.reference import read_reference
from fedhv.runs.resolve import resolve_reference
from fedhv.support.errors import InputError

HIGHER = {
    "mean_accuracy": True, "worst_accuracy": True, "mean_loss": False, "hypervolume": True, "accuracy": True,
    "loss": False,
}  # fmt: skip
RESULTS = ("main-results", "loss-hv-results", "per-task-final", "ablation-full", "last10")


def contests():
    for name in RESULTS:
        for contest, competitors in results(name).items():
            for metric in next(iter(competitors.values())):
                yield name, contest, metric, {who: values[metric] for who, values in competitors.items()}


# --- files ------------------------------------------------------------------------------------------------


def test_every_table_is_there_under_its_printed_number():
    printed = [
        "main-results", None, "partition-settings", "shared-training-settings", "method-learning-rates",
        "training-references", "reference-diagnostics", "loss-hv-results", "per-task-final", "ablation-full", "last10",
        "complexity-comparison", "empirical-efficiency",
    ]  # fmt: skip
    numbers = {name: f"Table {number}" for number, name in enumerate(printed, start=1) if name is not None}
    assert published.names() == sorted(numbers)
    assert {name: published.table(name)["label"] for name in numbers} == numbers


# Table 2, as it is printed.
ATTRIBUTE_GROUPS = {
    "T1": "5-o'Clock Shadow, Blond Hair, Bags Under Eyes, Eyeglasses, Mustache, Wavy Hair, Oval Face, Rosy Cheeks",
    "T2": "Arched Eyebrows, Black Hair, Big Nose, Blurry, Goatee, Straight Hair, Pale Skin, Wearing Earrings",
    "T3": "Attractive, Brown Hair, Bushy Eyebrows, Double Chin, Mouth Slightly Open, Receding Hairline, Wearing Hat, "
    "Young",
    "T4": "Bald, Big Lips, Chubby, Heavy Makeup, High Cheekbones, Male, Sideburns, Smiling",
    "T5": "Bangs, Gray Hair, Narrow Eyes, No Beard, Pointy Nose, Wearing Lipstick, Wearing Necklace, Wearing Necktie",
}


def test_the_groups_of_celeba5_are_those_of_the_papers_table():
    printed = {task: names.replace("-o'", "_o_").replace(" ", "_") for task, names in ATTRIBUTE_GROUPS.items()}
    assert {task: ",_".join(group) for task, group in GROUPS.items()} == printed


@pytest.mark.parametrize("name", ["main-results", "loss-hv-results"])
def test_tables_of_all_methods_have_every_setting_and_method(name):
    found = results(name)
    assert [contest for (contest,) in found] == list(SETTINGS)
    assert all(list(competitors) == list(METHODS) for competitors in found.values())


def test_tables_of_the_adaptive_methods_have_every_setting_that_they_are_about():
    assert [contest for (contest,) in results("last10")] == list(SETTINGS)
    tasks = [(setting, f"task {i}") for setting in TWO_TASKS for i in (1, 2)]
    assert sorted(results("per-task-final")) == sorted(tasks)
    for name in ("last10", "per-task-final"):
        assert all(list(competitors) == ["fsmgda", "fedcmoo", "fedhv"] for competitors in results(name).values())


def test_the_ablations_are_the_sweeps_and_their_defaults_the_settings():
    assert {contest: tuple(values) for (contest,), values in results("ablation-full").items()} == {
        sweep.name: sweep.values for sweep in SWEEPS
    }
    setting = load_setting(ABLATED)
    report, participants, steps = (sweep.default for sweep in SWEEPS)
    assert setting.method("fedhv").report == report
    assert (setting.federation.participants, setting.training.local_steps) == (int(participants), int(steps))


def test_numbers_keep_their_digits_and_marks():
    assert results("main-results")[("multimnist",)]["fedhv"] == {
        "mean_accuracy": Printed(90.72, 0.65, 2, "best"),
        "worst_accuracy": Printed(88.94, 0.61, 2, "best"),
    }
    assert results("ablation-full")[("local_steps",)]["5"]["mean_loss"] == Printed(0.7455, 0.0055, 4, "best")
    assert results("per-task-final")[("cifar10-mnist-b", "task 2")]["fedhv"]["loss"] == Printed(0.228, 0.009, 3)
    assert published.efficiency().methods["fsmgda"] == {
        "total_megabytes": Printed(205.5, None, 1),
        "seconds": Printed(2824.73, 33.31),
        "downlink_megabytes": Printed(69.06),
        "uplink_megabytes": Printed(136.50),
    }


# --- consistency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "contest", "metric", "values"), list(contests()), ids=lambda v: str(v)[:40])
def test_what_is_marked_is_what_the_means_say(name, contest, metric, values):
    order = paper_ranks(values, HIGHER[metric])
    assert {who: rank for who, rank in order.items() if rank <= 2} == {
        who: {"best": 1, "second": 2}[value.mark] for who, value in values.items() if value.mark
    }
    means = [value.mean for value in values.values()]
    tied = len(set(means)) < len(means)
    assert tied == ((name, contest, metric) == ("main-results", ("celeba5-b",), "worst_accuracy"))


@pytest.mark.parametrize("setting", TWO_TASKS)
@pytest.mark.parametrize("method", ["fsmgda", "fedcmoo", "fedhv"])
def test_aggregates_are_those_of_the_tasks_within_rounding(setting, method):
    accuracy, loss = (
        [results("per-task-final")[setting, f"task {i}"][method][kind].mean for i in (1, 2)]
        for kind in ("accuracy", "loss")
    )
    main, losses = results("main-results")[(setting,)][method], results("loss-hv-results")[(setting,)][method]
    assert main["mean_accuracy"].mean == pytest.approx(sum(accuracy) / 2, abs=0.0101)
    assert main["worst_accuracy"].mean == min(accuracy)
    assert losses["mean_loss"].mean == pytest.approx(sum(loss) / 2, abs=0.00101)
    # Over seeds, the mean of products is not the product of means; it is near where seeds differ little.
    assert losses["hypervolume"].mean == pytest.approx((3 - loss[0]) * (3 - loss[1]), abs=0.01)


def test_floor_activations_are_out_of_all_rounds_tasks_and_seeds():
    tasks = {setting: len(r.values) for r in published.training_references() for setting in r.settings}
    for setting, found in published.reference_diagnostics().items():
        assert found.out_of == load_setting(setting).training.rounds * tasks[setting] * 3
        assert found.slack.mean > 0


def test_megabytes_of_a_round_add_up():
    methods = published.efficiency().methods
    for method in ("fsmgda", "fedcmoo", "fedhv"):
        values = methods[method]
        both = values["downlink_megabytes"].mean + values["uplink_megabytes"].mean
        assert values["total_megabytes"].mean == pytest.approx(both, abs=0.1)  # the paper truncates 205.56 to 205.5
    found = published.table("empirical-efficiency")
    assert float(found["calibration_gigabytes"]) == pytest.approx(20 * 2 * 69.06 / 1000, abs=0.005)


# --- the settings are the paper's -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_those_of_the_papers_tables(name):
    setting = load_setting(name)
    federation, training = (published.table(t)[name] for t in ("partition-settings", "shared-training-settings"))
    for key in ("clients", "participants", "samples_per_client", "alpha"):
        assert getattr(setting.federation, key) == federation[key]
    assert (setting.federation.strata == "all") == (federation["strata"] == "all")
    assert setting.federation.seed == 10
    for key in ("rounds", "batch_size", "local_steps", "momentum"):
        assert getattr(setting.training, key) == training[key]
    assert setting.evaluation.every == training["evaluate_every"]
    for method, rates in published.table("method-learning-rates")[name].items():
        chosen = setting.method(method)
        assert {"server_lr": chosen.server_lr, "local_lr": chosen.local_lr} == rates


def test_the_settings_hold_the_papers_references():
    listed = [setting for reference in published.training_references() for setting in reference.settings]
    assert sorted(listed) == sorted(SETTINGS)
    for reference in published.training_references():
        for name in reference.settings:
            assert load_setting(name).references["paper"] == tuple(value.mean for value in reference.values)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_takes_the_reference_that_we_calibrated(name):
    """`--reference ours` has one value for every task, from the calibration that is kept in results/study."""
    setting = load_setting(name)
    tasks = range(len(setting.references["paper"]))
    ours = resolve_reference(
        "ours", setting, SimpleNamespace(tasks=[SimpleNamespace(name=f"T{i}", scale=None) for i in tasks])
    )
    assert ours.provenance.source == f"{name}, ours"
    assert ours.values != setting.references["paper"]
    assert ours.values == load_setting(setting.calibration.setting or name).references["ours"]
    study = Path(__file__).parents[2] / "results" / "study"
    if study.exists():  # an unpacked package has no results
        kept = read_reference(study / name / "reference.toml")
        assert ours.values == tuple(round(value, 6) for value in kept.values)
        assert kept.provenance.setting == (setting.calibration.setting or name)


# --- bad files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "90.7 ± 0.65", "90.72 +- 0.65", "x", "90.72 ± 0.65 worst", 90.7, None])
def test_a_number_that_is_not_printed_like_one_is_refused(text):
    with pytest.raises(InputError, match=r"printed number|equally many digits"):
        Printed.of(text)


def one(**marks):
    return {("s",): {who: {"x": Printed(1.0, 0.1, 2, mark)} for who, mark in marks.items()}}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (one(a="best", b=""), "should mark best and second"),
        (one(a="best", b="best"), "should mark best and second"),
        ({("s",): {"a": {"x": Printed(1.0)}, "b": {"y": Printed(1.0)}}}, "expected"),
        ({("s",): {"a": {"x": Printed(1.0)}, "b": {"x": Printed(1.0, digits=3)}}}, "2 digits throughout"),
    ],
)
def test_a_table_that_is_not_whole_is_refused(found, reason):
    with pytest.raises(InputError, match=reason):
        published.check_results(found, "table.toml")


def test_an_unknown_table_suggests_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'main-results'"):
        published.table("main-result")
