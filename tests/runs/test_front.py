"""Fronts: points over preferences and knobs, hypervolumes by hand, and files that a page can show."""

import csv
import json
import math

import numpy as np
import pytest
from mixed import CHANGES, mixed
from observers import Watch
from report.studies import write_run

from fedhv import FedHVError, Front, InputError, front, read_run
from fedhv.methods.rules.fixed import Fixed
from fedhv.methods.rules.moving import MovingFedHV
from fedhv.methods.rules.stch import STCH
from fedhv.report import read_study
from fedhv.report.figures.fronts import front_figure
from fedhv.report.front import FrontPoint, Judged, MethodFront
from fedhv.report.front_files import front_headings, front_rows
from fedhv.report.palette import METHOD_STYLES, front_styles
from fedhv.report.payload import payload
from fedhv.runs.fronts import check_front_ranges, front_of, preference_points


def test_preferences_of_two_tasks_are_even_and_of_more_lie_on_the_simplex():
    assert preference_points(3, 2) == [(0.25, 0.75), (0.5, 0.5), (0.75, 0.25)]
    points = preference_points(6, 4)
    assert points[0] == (0.25,) * 4
    assert len(set(points)) == 6
    assert all(sum(p) == pytest.approx(1, abs=1e-5) and min(p) > 0 for p in points)


def test_a_knob_goes_from_one_end_of_its_range_to_the_other():
    found = front_of(MovingFedHV(), "factor", 3, 2, {"factor": (1.1, 2.0)})
    assert [round(v, 3) for v in found.values] == [1.1, round(1 + 0.1**0.5, 3), 2.0]
    assert [variant.method.factor for variant in found.variants] == list(found.values)
    with pytest.raises(InputError, match=r"at least two tasks\. Found one\.$"):
        front_of(Fixed(), None, 3, 1, {})
    with pytest.raises(InputError, match="needs a range"):
        front_of(Fixed(), "local_lr", 3, 2, {})


def test_a_front_of_two_methods_is_written_with_hypervolumes_and_read_again(setting_file, tmp_path):
    pytest.importorskip("moocore")
    kinds = ["fixed", "fedhv-moving@factor"]
    found = front(str(setting_file), kinds, 3, beside=["uniform"], seeds=[0, 1], rounds=2, out=tmp_path, jobs=1)
    told = json.loads((tmp_path / "front.json").read_text())
    assert [(each["label"], each["over"], len(each["points"])) for each in told["methods"]] == [
        ("fixed", "preferences", 6), ("fedhv-moving (factor)", "factor", 6), ("uniform", None, 2)
    ]  # fmt: skip
    first = told["methods"][0]["points"][0]
    assert first["value"] == [0.25, 0.75]
    assert first["weights"] == pytest.approx([0.25, 0.75])
    assert (tmp_path / first["run"] / "summary.json").exists()
    volume = told["methods"][0]["hypervolume"]["loss"]
    assert volume["low"] <= volume["mean"] <= volume["high"]
    assert set(volume["by_seed"]) == {"0", "1"}
    assert [each["methods"] for each in told["differences"]] == [["fixed", "fedhv-moving (factor)"]]
    assert len(list(csv.reader((tmp_path / "front.csv").open()))) == 1 + 14
    assert (tmp_path / "front.png").stat().st_size > 5000
    again = front(str(setting_file), kinds, 3, beside=["uniform"], seeds=[0, 1], rounds=2, out=tmp_path, jobs=1)
    assert again == found


def test_tasks_are_judged_by_their_main_metrics_in_their_directions(tmp_path):
    """ROC-AUC is better if it is higher, RMSE if it is lower; the hypervolume is that of test losses alone."""
    pytest.importorskip("moocore")
    found = front(mixed(), ["fixed"], 4, seeds=[0, 1], rounds=12, out=tmp_path, override=CHANGES, quiet=True)
    assert [(each.name, each.higher) for each in found.judged] == [("roc_auc", True), ("rmse", False)]
    (method,) = found.methods
    for seed in (0, 1):
        own = [point for point in method.points if point.seed == seed]
        for point in own:
            task = read_run(tmp_path / point.run).summary.tasks
            assert point.scores == (task[0].metrics["roc_auc"], task[1].metrics["rmse"])
            auc, rmse = point.scores
            better = [q for q in own if q.scores != point.scores and q.scores[0] >= auc and q.scores[1] <= rmse]
            assert point.nondominated == (not better)
    assert list(method.hypervolume) == ["loss"]
    told = json.loads((tmp_path / "front.json").read_text())
    assert told["metrics"] == [{"name": "roc_auc", "better": "higher"}, {"name": "rmse", "better": "lower"}]
    assert list(told["methods"][0]["hypervolume"]) == ["loss"]
    assert all(0 <= x <= 1 and y > 0 for x, y in told["methods"][0]["attainment"])
    assert front_headings(found)[4:] == ["best kind roc_auc ↑", "best stay rmse ↓", "HV of losses ↑"]
    (row,) = front_rows(found)
    assert float(row[5]) == pytest.approx(min(scores[1] for _, scores, _ in method.means()), abs=1e-3)
    axes = front_figure(found).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("kind: roc_auc ↑", "stay: rmse ↓")
    (on_page,) = payload(read_study([tmp_path]))["fronts"]
    assert [each["higher"] for each in on_page["metrics"]] == [True, False]


def test_a_front_over_many_tasks_with_different_metrics_is_drawn_in_test_losses():
    point = FrontPoint(0, 0, "", (0.9, 2.0, 50.0), (0.3, 1.0, 0.7), None, (1 / 3,) * 3)
    method = MethodFront("one", "one", "knob", (point,), {"loss": {0: 1.0}})
    judged = (Judged("roc_auc"), Judged("rmse", higher=False), Judged())
    found = Front("s", ("a", "b", "c"), 1, (0,), {"loss": 3.0}, (method,), None, judged)
    axes = front_figure(found).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Mean test loss", "Worst test loss")


def test_methods_of_a_front_have_the_styles_of_the_page():
    point = FrontPoint(0, 0, "", (80.0, 70.0), (0.3, 1.0), None, (0.5, 0.5))
    methods = tuple(MethodFront(name, name, "knob", (point,), {"loss": {0: 1.0}}) for name in ("stch", "fedhv"))
    found = Front("s", ("a", "b"), 1, (0,), {"loss": 3.0}, methods, None, (Judged(), Judged()))
    drawn = {line.get_label(): line.get_color() for line in front_figure(found).axes[0].get_lines()}
    looks = front_styles(["stch", "fedhv"])
    assert (drawn["stch"], drawn["fedhv"]) == (looks[0].colour, METHOD_STYLES["fedhv"].colour)


def points(*scores: tuple[float, float]) -> tuple[FrontPoint, ...]:
    return tuple(FrontPoint(i, 0, "", s, (1.0, 1.0), None, (0.5, 0.5)) for i, s in enumerate(scores))


def undefined() -> Front:
    """Two fronts over two tasks with metrics; one point of the second has no score of the first task."""
    one, other = (
        MethodFront(name, name, "knob", points(*scores), {"loss": {0: 1.0}})
        for name, scores in (("one", [(0.9, 2.0), (0.8, 1.0)]), ("other", [(math.nan, 3.0), (0.7, 0.5)]))
    )
    return Front(
        "s", ("a", "b"), 1, (0,), {"loss": 3.0}, (one, other), None, (Judged("roc_auc"), Judged("rmse", False))
    )


def test_a_score_that_is_not_defined_is_the_worst_and_not_the_best():
    told = {(each["space"], each["method"], each["by"]): each["dominated"] for each in undefined().dominated()}
    assert (told["score", "other", "one"], told["score", "one", "other"]) == (1, 0)
    assert [row[4:6] for row in front_rows(undefined())] == [("0.9", "1"), ("0.7", "0.5")]


def test_a_front_with_a_score_that_is_not_defined_is_on_the_page(tmp_path):
    write_run(tmp_path / "r")
    undefined().write(tmp_path, figures=False)
    (on_page,) = payload(read_study([tmp_path]))["fronts"]
    assert [point["scores"] for point in on_page["methods"][1]["points"]] == [[None, 3.0], [0.7, 0.5]]


def test_domination_is_counted_between_mean_points():
    volumes = {"score": {0: 0.0}, "loss": {0: 0.0}}
    one = MethodFront("one", "one", None, points((50.0, 50.0)), volumes)
    many = MethodFront("many", "many", "preferences", points((60.0, 55.0), (40.0, 70.0)), volumes)
    found = Front("s", ("a", "b"), 1, (0,), {"score": 0.0, "loss": 3.0}, (one, many))
    told = {(each["space"], each["method"], each["by"]): each["dominated"] for each in found.dominated()}
    assert told["score", "one", "many"] == 1
    assert told["loss", "one", "many"] == 0  # equal losses dominate nothing


def test_hypervolumes_are_those_worked_out_by_hand(setting_file, tmp_path):
    package = pytest.importorskip("moocore")
    errors = np.array([[0.2, 0.8], [0.5, 0.5], [0.6, 0.6]])
    assert package.hypervolume(errors, ref=np.ones(2)) == pytest.approx(0.8 * 0.2 + 0.5 * 0.3)
    found = front(str(setting_file), ["fixed"], 2, seeds=[0], rounds=1, out=tmp_path, jobs=1)
    (a, b), mine = (
        [np.array(p.scores) / 100 for p in found.methods[0].points],
        found.methods[0].hypervolume["score"][0],
    )
    boxes = a.prod() + b.prod() - np.minimum(a, b).prod()
    assert mine == pytest.approx(boxes)


def test_mistakes_in_a_front_are_one_line(setting_file):
    with pytest.raises(InputError, match="at least 2 points"):
        front(str(setting_file), ["fixed"], 1)
    with pytest.raises(InputError, match="takes no preferences and has no knob"):
        front(str(setting_file), ["uniform"])
    with pytest.raises(InputError, match="Unknown hyper-parameter of method 'fixed' 'mu'"):
        front(str(setting_file), ["fixed@mu"])
    with pytest.raises(InputError, match=r"at least 2 points\. Found 2\.5"):
        front(str(setting_file), ["fixed"], 2.5)
    with pytest.raises(InputError, match=r"^`beside` should be a list\. Found 'uniform'\.$"):
        front(str(setting_file), ["fixed"], 2, beside="uniform")
    with pytest.raises(InputError, match=r"^Unknown range 'power'\. Known: none"):
        front(str(setting_file), ["fixed"], 2, ranges={"power": (1.0, 2.0)})
    with pytest.raises(InputError, match=r"^`ranges` should be a dict"):
        front(str(setting_file), ["fixed"], 2, ranges=[0.1, 1.0])
    with pytest.raises(
        InputError, match=r"^The range of `factor` should be two numbers above 1, the smaller first\. F"
    ):
        front(str(setting_file), ["fedhv-moving@factor"], 2, ranges={"factor": (1.0, 2.0)})


def test_a_range_is_for_one_method_or_for_all_that_vary_its_key():
    both = [(MovingFedHV(), "factor"), (STCH(), "mu")]
    given = {"fedhv-moving.factor": (1.1, 2.0), "mu": (0.1, 1.0)}
    assert check_front_ranges(given, both) == given


@pytest.mark.parametrize(
    ("over", "ranges", "said"),
    [
        ("fedhv-moving@factor", {"factr": (1.1, 2.0)}, "Unknown range 'factr'. Did you mean 'factor'"),
        ("fixed", {"preferences": (0.1, 0.9)}, "Unknown range 'preferences'. Known: none"),
        ("fedhv-moving@factor", {"factor": (1.0, 2.0)}, "`factor` should be two numbers above 1, the smaller first"),
        ("fedhv-moving@factor", {"fedhv-moving.factor": (0.5, 2.0)}, "two numbers above 1"),
        ("stch@mu", {"mu": (2.0, 1.0)}, "two positive numbers, the smaller first"),
        ("fedhv@reference", {"reference": (1.0, 2.0)}, "`reference` of method 'fedhv' is not a number"),
    ],
)
def test_a_range_that_cannot_be_used_is_an_error(over, ranges, said, setting_file):
    with pytest.raises(InputError, match=said):
        front(str(setting_file), [over], 2, ranges=ranges)


def test_a_range_by_the_methods_name_is_used(setting_file):
    pytest.importorskip("moocore")
    ranges = {"stch.mu": (0.5, 0.75)}
    found = front(str(setting_file), ["stch@mu"], 2, seeds=[0], ranges=ranges, rounds=1, jobs=1, quiet=True)
    assert [point.value for point in found.methods[0].points] == [0.5, 0.75]


def test_points_that_diverge_are_left_out_and_named(setting_file, tmp_path):
    pytest.importorskip("moocore")
    watch, ranges = Watch(), {"local_lr": (0.1, 1e30)}
    found = front(
        str(setting_file), ["fixed@local_lr"], 2, beside=["uniform"], seeds=[0, 1], ranges=ranges, rounds=1,
        out=tmp_path, jobs=1, observer=watch,
    )  # fmt: skip
    assert [(each.label, {point.value for point in each.points}) for each in found.methods] == [
        ("fixed (local_lr)", {0.1}), ("uniform", {None})
    ]  # fmt: skip
    (lost,) = found.diverged
    assert str(lost) == "fixed (local_lr) at local_lr 1e+30 diverged with seeds 0, 1"
    assert f"{lost}: left out of the front." in watch.said
    told = json.loads((tmp_path / "front.json").read_text())
    assert told["diverged"] == [{"label": "fixed (local_lr)", "over": "local_lr", "value": 1e30, "seeds": [0, 1]}]
    with pytest.raises(FedHVError, match=r"At every point of the front a run diverged: .*local_lr 1e\+29"):
        front(str(setting_file), ["fixed@local_lr"], 2, seeds=[0], ranges={"local_lr": (1e29, 1e30)}, rounds=1, jobs=1)


def test_a_reference_that_no_method_takes_is_refused(setting_file):
    pytest.importorskip("moocore")
    with pytest.raises(InputError, match=r"^Method 'fixed' takes no reference\. Leave out --reference\.$"):
        front(str(setting_file), ["fixed"], 2, seeds=[0], rounds=1, reference=[9.0, 9.0])


def test_the_rounds_of_a_front_are_those_that_were_asked_for(setting_file, tmp_path):
    pytest.importorskip("moocore")
    still = ["federation.validation=0.3", "evaluation.every=1", "evaluation.patience=1"]
    found = front(
        str(setting_file), ["fixed@local_lr"], 2, seeds=[0], ranges={"local_lr": (1e-9, 2e-9)}, rounds=5, out=tmp_path,
        override=still, jobs=1, quiet=True,
    )  # fmt: skip
    assert {read_run(tmp_path / point.run).summary.rounds for point in found.methods[0].points} == {2}
    assert json.loads((tmp_path / "front.json").read_text())["rounds"] == 5


def test_a_front_leaves_out_no_point_of_an_earlier_one_in_its_folder(setting_file, tmp_path):
    """A report would compare the points that the file no longer names."""
    pytest.importorskip("moocore")
    once = {"seeds": [0], "rounds": 1, "out": tmp_path, "jobs": 1, "quiet": True}
    front(str(setting_file), ["stch@mu"], 2, beside=["uniform"], **once)
    with pytest.raises(InputError, match=r"front\.json has stch-mu-0, stch-mu-1, which would be left out\. Show these"):
        front(str(setting_file), ["fixed"], 2, **once)
    assert len(front(str(setting_file), ["fixed", "stch@mu"], 2, **once).methods) == 2
