"""Figures are tested for what they show: lines, bands, ticks and words, not pixels."""

from __future__ import annotations

import builtins
import json
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from fedhv.benchmarks import load_benchmark
from fedhv.problem.problem import Clients
from fedhv.report import make_study, read_study
from fedhv.report.aggregate import cost_curve, cost_until, metric_curve, round_curve
from fedhv.report.figures import ablation, balance, benchmark, costs, learning, tradeoff
from fedhv.report.figures.drawing import drawing, write_figure
from fedhv.report.figures.writing import figures_of, prefixes, write_figures
from fedhv.report.palette import METHOD_STYLES, OKABE_ITO, styles
from fedhv.runs.config import GIVEN
from fedhv.support.errors import InputError
from fedhv.support.wording import plain
from report.studies import write_run, write_study

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")


@pytest.fixture(autouse=True)
def _style():
    with drawing():
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    for steps in (5, 20):
        write_study(folder / f"K{steps}", ("fedhv",), (0, 42), rounds=20, local_steps=steps)
    return read_study([write_study(folder, METHODS, (0, 42, 2026), rounds=20)])


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five")
    return read_study([write_study(folder, METHODS, (0, 42), tasks=("a", "b", "c", "d", "e"), rounds=12)])


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_curves_are_means_over_seeds_with_one_sample_deviation(study):
    group = study.settings[0].groups[-1]
    curve = metric_curve(group, "worst_accuracy")
    values = np.array([run.evaluations.values("worst_accuracy") for run in group.runs])
    assert curve.x.tolist() == [4, 8, 12, 16, 20]
    np.testing.assert_allclose(curve.mean, values.mean(axis=0))
    np.testing.assert_allclose(curve.deviation, values.std(axis=0, ddof=1))


def test_a_run_that_ended_early_leaves_the_mean_to_the_others(tmp_path):
    write_run(tmp_path / "a", seed=0, rounds=12)
    write_run(tmp_path / "b", seed=42, rounds=12, done=5)
    (group,) = read_study([tmp_path]).settings[0].groups
    curve = metric_curve(group, "mean_loss")
    assert curve.count.tolist() == [2, 1, 1]
    assert np.isnan(curve.deviation[1:]).all()
    assert curve.mean[2] == group.runs[0].evaluations.values("mean_loss")[2]


def test_costs_include_calibration(study):
    group = study.settings[0].groups[-1]
    run = group.runs[0]
    spent = cost_until(run, "bytes")
    assert spent[0] == run.calibration_bytes + (run.rounds.down + run.rounds.up)[:4].sum()
    curve = cost_curve(group, "mean_accuracy", "seconds")
    np.testing.assert_allclose(curve.x, np.mean([cost_until(run, "seconds") for run in group.runs], axis=0))


def test_the_aggregate_figure_shows_every_method_in_its_colour_and_style(study):
    looks = styles(study)
    figure = learning.aggregates(study.settings[0], looks)
    assert [axes.get_title()[4:] for axes in figure.axes] == list(learning.TITLES.values())
    for axes, metric in zip(figure.axes, learning.TITLES, strict=True):
        drawn = lines(axes)
        assert list(drawn) == ["Uniform", "FSMGDA", "FedCMOO", "FedHV"]
        assert len(axes.collections) == 4  # a band for each
        for group in study.settings[0].groups:
            line = drawn[group.label]
            np.testing.assert_array_equal(line.get_ydata(), metric_curve(group, metric).mean)
            assert to_hex(line.get_color()).upper() == METHOD_STYLES[group.method].colour
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Uniform", "FSMGDA", "FedCMOO", "FedHV"]


def test_hypervolumes_that_cannot_be_compared_are_not_drawn_and_the_figure_says_so(tmp_path):
    for seed, against in enumerate((3.0, 9.0)):
        write_run(tmp_path / str(seed), method="uniform", seed=seed, against=against)
    read = read_study([tmp_path])
    with drawing():
        axes = learning.aggregates(read.settings[0], styles(read)).axes
    assert [each.get_title() for each in axes[2:]] == ["(c) Mean loss", "(d) Hypervolume (left out)"]
    drawn = [any(np.isfinite(line.get_ydata()).any() for line in each.lines) for each in axes]
    assert drawn == [True, True, True, False]


def test_methods_differ_in_colour_and_in_dashes(study):
    looks = styles(study)
    named = [looks[label] for label in ("Uniform", "FSMGDA", "FedCMOO", "FedHV")]
    assert len({style.colour for style in named}) == len({style.dash for style in named}) == 4
    assert {style.colour for style in looks.values()} <= set(OKABE_ITO.values())


def test_the_papers_methods_look_the_same_whoever_else_is_there(tmp_path):
    small = styles(read_study([write_study(tmp_path / "a", ("fedhv",))]))
    large = styles(read_study([write_study(tmp_path / "b", ("aaa", "fedhv", "zzz", "fsmgda"))]))
    assert small["FedHV"] == large["FedHV"]
    assert len(set(large.values())) == 4


def test_per_task_figures_have_a_panel_for_every_task_and_kind(study, five, tmp_path):
    ((name, figure),) = learning.per_task(study.settings[0], styles(study))
    assert (name, len(figure.axes)) == ("per-task", 4)
    group = study.settings[0].groups[0]
    np.testing.assert_array_equal(lines(figure.axes[3])["Uniform"].get_ydata(), metric_curve(group, "loss.1").mean)
    tasks = [f"t{i}" for i in range(7)]
    many = read_study([write_run(tmp_path / "r", tasks=tasks, rounds=4)])
    drawn = dict(learning.per_task(many.settings[0], styles(many)))
    assert list(drawn) == ["per-task-accuracy", "per-task-loss"]
    assert [axes.get_title() for axes in drawn["per-task-loss"].axes] == tasks


def test_the_plane_shows_the_easiest_task_across_and_the_hardest_upwards(five):
    setting = five.settings[0]
    figure = tradeoff.plane(setting, styles(five))
    (axes,) = (each for each in figure.axes if each.get_xlabel())
    assert axes.get_xlabel().startswith("a:")
    assert axes.get_ylabel().startswith("e:")
    group = setting.groups[-1]
    path = lines(axes)["FedHV"]
    np.testing.assert_array_equal(path.get_xdata(), metric_curve(group, "accuracy.0").mean)
    np.testing.assert_array_equal(path.get_ydata(), metric_curve(group, "accuracy.4").mean)
    ends = [container.lines[0].get_xydata()[0] for container in axes.containers]
    finals = [run.evaluations.accuracy[-1] for run in group.runs]
    np.testing.assert_allclose(ends[-1], np.mean(finals, axis=0)[[0, 4]])


def test_the_plane_is_drawn_near_the_final_points_and_an_inset_has_the_way_there(study):
    setting = study.settings[0]
    axes = tradeoff.plane(setting, styles(study)).axes[0]
    (inset,) = axes.child_axes
    ends = np.array([container.lines[0].get_xydata()[0] for container in axes.containers])
    for limits, values in ((axes.get_xlim(), ends[:, 0]), (axes.get_ylim(), ends[:, 1])):
        assert limits[0] < values.min() <= values.max() < limits[1]
        assert limits[1] - limits[0] < 3 * max(np.ptp(values), 1.0)
    starts = [metric_curve(group, "accuracy.0").mean[0] for group in setting.groups]
    assert max(starts) < axes.get_xlim()[0]  # the curves begin outside
    assert inset.get_xlim()[0] < min(starts)
    top = tradeoff.INSET[1] + tradeoff.INSET[3]  # in parts of the axes
    assert ends[:, 1].min() > axes.get_ylim()[0] + top * np.ptp(axes.get_ylim())  # the inset covers no final point


def test_the_radar_closes_and_says_where_its_axis_is_cut(five):
    figure = tradeoff.radar(five.settings[0], styles(five))
    (axes,) = figure.axes
    for group in five.settings[0].groups:
        around = lines(axes)[group.label].get_ydata()
        assert len(around) == 6
        assert around[0] == around[-1]
        assert around[2] == pytest.approx(np.mean([run.evaluations.accuracy[-1, 2] for run in group.runs]))
    low, high = axes.get_ylim()
    assert f"{low:g} to {high:g}" in figure.get_supxlabel()
    assert tradeoff.radial_limits(99.9, 99.95) == (98.0, 100.0)
    assert tradeoff.radial_limits(0.0, 5.0)[0] == 0.0


def test_weights_are_drawn_for_methods_that_adapt_them(study):
    setting = study.settings[0]
    figure = balance.weights(setting)
    assert [axes.get_title()[4:] for axes in figure.axes] == ["FSMGDA", "FedCMOO", "FedHV"]
    group = setting.groups[-1]
    expected = round_curve(group, lambda run: run.rounds.weights[:, 1]).mean
    np.testing.assert_array_equal(lines(figure.axes[2])["faint"].get_ydata(), expected)


def test_the_axis_of_weights_has_the_largest_weight_of_every_panel(tmp_path):
    folder = write_study(tmp_path, ("fsmgda", "fedhv"), (0,))
    history = folder / "fedhv-seed0" / "history.jsonl"  # drawn after FSMGDA's
    rounds = [json.loads(line) for line in history.read_text().splitlines()]
    rounds[-1]["weights"] = [0.02, 0.98]
    history.write_text("".join(json.dumps(each) + "\n" for each in rounds))
    figure = balance.weights(read_study([folder]).settings[0])
    assert all(axes.get_ylim()[0] == 0 for axes in figure.axes)
    assert all(0.98 < axes.get_ylim()[1] <= 1 for axes in figure.axes)


def test_slacks_far_above_the_floor_leave_no_empty_decades(study):
    figure = balance.slacks(study.settings[0])
    linear, log = figure.axes
    assert (linear.get_yscale(), log.get_yscale()) == ("linear", "log")
    assert [each.get_title() for each in figure.axes] == ["(a) FedHV, linear axis", "(b) FedHV, logarithmic axis"]
    assert log.get_ylim()[0] > 1e-2
    assert [text.get_text() for text in log.texts] == ["floor 1e-06, below this axis"]
    group = study.settings[0].groups[-1]
    expected = round_curve(group, lambda run: run.rounds.slack[:, 0]).mean
    np.testing.assert_array_equal(lines(linear)["clear"].get_ydata(), expected)


def test_slacks_near_the_floor_show_it(tmp_path):
    near = read_study([write_study(tmp_path, ("fedhv",), (0,), parameters={"floor": 0.05})])
    log = balance.slacks(near.settings[0]).axes[1]
    assert set(lines(log)["floor 0.05"].get_ydata()) == {0.05}


def test_many_tasks_become_maps_and_envelopes(tmp_path):
    many = read_study([write_study(tmp_path, ("fsmgda", "fedhv"), (0,), tasks=[f"t{i}" for i in range(12)], rounds=6)])
    setting = many.settings[0]
    figure = balance.weights(setting)
    maps = [axes.images[0] for axes in figure.axes if axes.images]
    assert [image.get_array().shape for image in maps[:2]] == [(12, 6), (12, 6)]
    assert maps[0].get_clim() == maps[1].get_clim()
    drawn = lines(balance.slacks(setting).axes[0])
    np.testing.assert_allclose(
        drawn["smallest of 12 tasks"].get_ydata(), setting.groups[-1].runs[0].rounds.slack.min(axis=1)
    )


def test_ablations_have_a_panel_for_every_factor(study):
    setting = study.settings[0]
    figure = ablation.panels_of(setting)
    top, bottom = figure.axes
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == ["5", "10", "20"]
    means = top.containers[0].lines[0].get_ydata()
    expected = [
        np.mean([run.evaluations.values("mean_accuracy")[-1] for run in group.runs])
        for group in setting.sweeps[0].groups
    ]
    np.testing.assert_allclose(list(means), expected)
    curves = ablation.curves(setting.sweeps[0])
    assert list(lines(curves.axes[0])) == ["$K$ = 5", "$K$ = 10", "$K$ = 20"]


def test_long_values_of_an_ablation_do_not_lie_on_each_other(tmp_path):
    for i in range(9):
        first = round(0.1 * (i + 1), 1)
        preferences = [first, round(1 - first, 1)]
        write_study(tmp_path / str(i), ("fixed",), (0,), rounds=4, parameters={"preferences": preferences})
    figure = ablation.panels_of(read_study([tmp_path]).settings[0])
    assert {tick.get_rotation() for tick in figure.axes[1].get_xticklabels()} == {40}


def test_a_legend_of_many_methods_leaves_the_plane_its_room(tmp_path):
    write_study(tmp_path, [f"rule {i}" for i in range(20)], (0,), rounds=4)
    many = read_study([tmp_path])
    figure = tradeoff.plane(many.settings[0], styles(many))
    write_figure(tmp_path / "plane", figure)  # computes the layout
    assert figure.axes[0].get_position().height * figure.get_figheight() > 2


def test_long_titles_of_panels_are_not_cut(tmp_path):
    tasks = ("sepsis", "days", "ward", "A very long task name: thirty-day readmission")
    long = read_study([write_study(tmp_path, METHODS, (0,), tasks=tasks, rounds=4)])
    ((_, figure),) = learning.per_task(long.settings[0], styles(long))
    figure.set_dpi(200)
    FigureCanvasAgg(figure).draw()
    ends = [each.title.get_window_extent().x1 for each in figure.axes]
    assert max(ends) <= figure.bbox.x1


def test_costs_are_in_readable_units(study):
    figure = costs.costs(study.settings[0], styles(study))
    assert figure.axes[2].get_xlabel() == "Sent in both directions (MB)"
    assert figure.axes[3].get_xlabel() == "Wall-clock time (seconds)"
    assert figure.axes[3].get_title() == "(d) Worst task against time"
    group = study.settings[0].groups[-1]
    np.testing.assert_allclose(
        lines(figure.axes[0])["FedHV"].get_xdata(), cost_curve(group, "mean_accuracy", "bytes").x / 1e6
    )
    assert costs.unit_of(3.2e9, "bytes") == (1e9, "GB")
    assert costs.unit_of(7200, "seconds") == (3600, "hours")
    assert costs.unit_of(100, "seconds") == (1, "seconds")


def test_label_distributions_count_labels_and_examples_are_the_test_images():
    digits = load_benchmark("digits")
    clients = Clients.of([np.arange(0, 50), np.arange(50, 150), np.arange(10)])
    shares = benchmark.label_shares(digits, clients, 1, 3)
    assert shares.shape == (10, 3)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    labels = digits.train.targets[1].numpy()[50:150]
    assert shares[3, 1] == np.mean(labels == 3)
    figure = benchmark.label_distribution(digits, clients)
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), shares)
    shown = benchmark.examples(digits)
    np.testing.assert_allclose(shown.axes[0].images[0].get_array(), digits.test.inputs[0, 0].numpy() / 255)
    first = [int(targets[0]) for targets in digits.test.targets]
    assert shown.axes[0].get_title() == f"clear {first[0]} · faint {first[1]}"


def test_names_that_look_like_mathematics_or_nothing_are_drawn_as_they_are(tmp_path):
    names = ("$x$", "_hidden", "a\nb")
    study = read_study([write_study(tmp_path, ("_mine", "$\\frac$"), (0,), tasks=names, rounds=4)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, figure in figures_of(study.settings[0], styles(study)):
            figure.draw_without_rendering()
    assert plain("x" * 60).endswith("…")


def test_a_setting_has_the_figures_that_it_has_data_for(study, five, tmp_path):
    one = read_study([write_run(tmp_path / "r", method="uniform", tasks=("only",), rounds=4)])

    def names(study):
        return [name for name, _ in figures_of(study.settings[0], styles(study))]

    assert names(study) == [
        "curves",
        "per-task",
        "plane",
        "weights",
        "slacks",
        "ablations",
        "ablation-fedhv-local_steps",
        "costs",
    ]
    assert names(five) == ["curves", "per-task", "plane", "radar", "weights", "slacks", "costs"]
    assert names(one) == ["curves", "per-task", "costs"]


def test_ablations_of_training_and_of_calibration_rounds_have_figures_of_their_own(tmp_path):
    write_run(tmp_path / "default", rounds=8)
    write_run(tmp_path / "long", rounds=12)
    config = write_run(tmp_path / "calibrated", rounds=8) / "config.toml"
    config.write_text(config.read_text().replace("rounds = 10\n", "rounds = 5\n"))
    study = read_study([tmp_path])
    drawn = dict(figures_of(study.settings[0], styles(study)))
    assert {"ablation-fedhv-training.rounds", "ablation-fedhv-calibration.rounds"} < set(drawn)
    _, labels = drawn["ablation-fedhv-training.rounds"].axes[0].get_legend_handles_labels()
    assert labels == ["$T$ = 8", "$T$ = 12"]


def test_files_hold_text_and_are_the_same_every_time(study, tmp_path):
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        write_figure(tmp_path / part / "x-plane", tradeoff.plane(study.settings[0], styles(study)))
    assert b"/FontFile2" in (tmp_path / "a" / "x-plane.pdf").read_bytes()  # TrueType: text, not outlines
    for name in ("x-plane.pdf", "x-plane.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_benchmarks_of_ones_own_are_not_run_by_a_report(tmp_path):
    study = read_study([write_run(tmp_path / "r", rounds=4, done=2, benchmark="my.own:benchmark")])
    paths, notes = write_figures(study, tmp_path)
    assert paths == []
    assert notes == [
        "my.own:benchmark: no figures of its labels and images, since it is not one of the shipped benchmarks"
    ]


def test_a_problem_of_ones_own_has_its_name_in_the_note_on_its_figures(tmp_path):
    study = read_study([write_run(tmp_path / "r", rounds=4, done=2, benchmark=GIVEN)])
    _, notes = write_figures(study, tmp_path)
    assert [note.partition(":")[0] for note in notes] == [study.settings[0].name]


def test_data_that_is_not_at_hand_is_a_note(tmp_path):
    study = read_study([write_run(tmp_path / "study", rounds=4, done=2, benchmark="multimnist")])
    paths, notes = write_figures(study, tmp_path, data=str(tmp_path / "nowhere"))
    assert paths == []
    assert "no figures of its labels and images: " in notes[0]
    assert len(notes) == 1


def test_runs_that_have_hardly_begun_are_drawn_as_far_as_they_are(tmp_path):
    write_run(tmp_path / "a", rounds=12)
    write_run(tmp_path / "b", seed=42, rounds=12, done=0)
    write_run(tmp_path / "c", method="uniform", rounds=12, done=2)
    write_run(tmp_path / "d", method="fsmgda", rounds=12, done=5)
    write_run(tmp_path / "e", method="fedcmoo", rounds=12, done=0)
    study = read_study([tmp_path])
    drawn = dict(figures_of(study.settings[0], styles(study)))
    assert list(lines(drawn["curves"].axes[0])) == ["FSMGDA", "FedHV"]
    assert set(lines(drawn["weights"].axes[0])) == {"clear", "faint"}
    for figure in drawn.values():
        figure.draw_without_rendering()


def test_several_settings_with_similar_names_do_not_overwrite_each_other(tmp_path):
    for i, name in enumerate(("a b", "a/b", "a-b")):
        write_run(tmp_path / str(i), setting=name, rounds=4, done=0, benchmark="none")
    assert sorted(prefixes(read_study([tmp_path])).values()) == ["a-b-", "a-b-2-", "a-b-3-"]


def test_a_missing_matplotlib_is_said_in_one_line(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'fedhv\[figures\]'"):
        write_figures(make_study("empty", []), tmp_path)
