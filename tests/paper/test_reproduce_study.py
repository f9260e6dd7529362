"""Running what is missing: once, shared references, resumed, and compared however much is there."""

import csv
import json
from dataclasses import replace

import pytest
from observers import Watch
from runs_on_disk import contents, records

from fedhv.paper import Options, Selection, planned_runs, reproduce
from fedhv.paper.measures import LAST
from fedhv.report.study import read_study
from fedhv.runs.reference import read_reference
from fedhv.support import toml
from fedhv.support.errors import InputError, Interrupted

pytestmark = pytest.mark.usefixtures("six")
SOME = Selection(("multimnist", "cifar10-mnist-a"), ("uniform", "fedhv"), (0, 1))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def options(out):
    return Options(out, jobs=1, engine="sequential")


def stamps(folder):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and "tables" not in path.parts
    }


def table(made, name):
    return next(sheet.records for output in made.outputs for sheet in output.sheets if sheet.name == name)


def test_runs_are_ordinary_studies_and_tables_are_written(options, out):
    made = reproduce("main", options, SOME)
    for setting in SOME.settings:
        assert {path.name for path in (out / setting).iterdir() if path.is_dir()} == {
            "uniform-seed0", "uniform-seed1", "fedhv-seed0", "fedhv-seed1"
        }  # fmt: skip
    assert {setting.name for setting in read_study([out]).settings} == set(SOME.settings)
    assert {path.name for path in made.files} == {"main.md", "main.csv", "main-rankings.csv"}
    assert [output.notes for output in made.outputs] == [()]
    values = [
        json.loads((out / "multimnist" / f"fedhv-seed{seed}" / "summary.json").read_text())["mean_accuracy"]
        for seed in (0, 1)
    ]
    row = next(r for r in table(made, "main") if (r["setting"], r["method"]) == ("multimnist", "fedhv"))
    assert row["ours_mean"] == pytest.approx(sum(values) / 2)
    assert row["ours_std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert (row["paper_mean"], row["paper_std"], row["ours_runs"]) == (90.72, 0.65, 2)
    assert row["difference"] == pytest.approx(sum(values) / 2 - 90.72)
    assert len(table(made, "main-rankings")) == 4


def test_nothing_is_done_twice(options, out, monkeypatch):
    first = reproduce("main", options, SOME)
    before, watch = stamps(out), Watch()
    monkeypatch.setattr("fedhv.paper.running.compare", lambda *a, **k: pytest.fail("a finished study was run"))
    again = reproduce("main", options, SOME, observer=watch)
    assert stamps(out) == before
    assert (watch.started, watch.said) == ([], [])
    assert [o.as_dict() for o in again.outputs] == [o.as_dict() for o in first.outputs]


def test_other_experiments_use_the_runs_that_are_there(options, out):
    reproduce("main", options, Selection(("cifar10-mnist-b",), seeds=(0,)))
    watch = Watch()
    for what in ("loss-hv", "per-task", "last10", "references", "efficiency"):
        reproduce(what, options, Selection(("cifar10-mnist-b",), seeds=(0,)), observer=watch)
    assert watch.started == []


def test_an_interrupted_reproduction_goes_on_and_comes_to_the_same(options, out, tmp_path):
    reproduce("main", Options(tmp_path / "whole", jobs=1, engine="sequential"), SOME)
    with pytest.raises(Interrupted):
        reproduce("main", options, SOME, observer=Watch(1, "uniform seed 1"))
    part = reproduce("main", options, SOME, run=False)
    assert part.outputs[0].notes == (
        "6 of 8 runs are not finished",
        "multimnist: uniform seed 1 (after round 1); fedhv seed 1",
        "cifar10-mnist-a: all 4 runs",
    )
    row = next(r for r in table(part, "main") if (r["setting"], r["method"]) == ("multimnist", "fedhv"))
    assert (row["ours_runs"], row["ours_std"]) == (1, None)
    watch = Watch()
    reproduce("main", options, SOME, observer=watch)
    assert watch.started[0] == ("uniform seed 1", 1)
    assert len(watch.started) == 6
    for name in ("multimnist/uniform-seed1", "multimnist/fedhv-seed1", "cifar10-mnist-a/fedhv-seed0"):
        assert contents(out / name) == contents(tmp_path / "whole" / name)


def test_an_interrupted_calibration_goes_on(options, out):
    selection = Selection(("multimnist",), ("fedhv",), (0,))
    with pytest.raises(Interrupted):
        reproduce("main", options, selection, observer=Watch(1, "calibration seed 0"))
    watch = Watch()
    reproduce("main", options, selection, observer=watch)
    assert watch.started == [("calibration seed 0", 1), ("fedhv seed 0", 0)]


# --- references -------------------------------------------------------------------------------------------


def test_a_family_is_calibrated_once_under_the_setting_that_the_rule_names(options, out):
    watch = Watch()
    selection = Selection(("cifar10-mnist-a", "cifar10-mnist-b", "celeba5-a"), ("fedhv",), (0, 1))
    reproduce("main", options, selection, observer=watch)
    calibrations = [label for label, _ in watch.started if label.startswith("calibration")]
    assert calibrations == ["calibration seed 0", "calibration seed 1", "calibration seed 0"]  # CelebA5's are two
    shared = read_reference(out / "calibration/cifar10-mnist-b/reference.toml")
    assert shared.provenance.setting == "cifar10-mnist-b"
    for setting in ("cifar10-mnist-a", "cifar10-mnist-b"):
        for seed in (0, 1):
            assert read_reference(out / setting / f"fedhv-seed{seed}" / "reference.toml").values == shared.values
    faces = read_reference(out / "celeba5-a/reference.toml")
    assert (faces.provenance.setting, faces.provenance.seeds) == ("celeba5-b", (0, 1))
    reports = [record["report"] for seed in (0, 1) for record in records(out / "calibration/celeba5-b" / f"seed{seed}")]
    assert faces.values == pytest.approx([max(losses) + 0.2 for losses in zip(*reports, strict=True)])


def test_variants_share_their_familys_reference(options, out):
    watch = Watch()
    made = reproduce("ablations", options, Selection(seeds=(0,)), observer=watch)
    assert [label for label, _ in watch.started] == ["calibration seed 0", *["fedhv seed 0"] * 10]
    values = {read_reference(path).values for path in out.glob("*/fedhv-seed0/reference.toml")}
    assert values == {read_reference(out / "calibration/cifar10-mnist-b/reference.toml").values}
    rows = {(r["ablation"], r["variant"]): r["ours_mean"] for r in table(made, "ablations") if "acc" in r["metric"]}
    assert len(rows) == 12
    assert rows["report", "all"] == rows["participants", "10"] == rows["local_steps", "10"]
    assert len({rows["local_steps", value] for value in ("1", "5", "10", "20")}) > 1
    slacks = table(made, "ablations-diagnostics")
    assert [row["out_of"] for row in slacks] == [4] * 12  # two rounds, two tasks, one run
    (setting,) = read_study([out]).settings
    assert [sweep.key for sweep in setting.sweeps] == [
        "methods.fedhv.report", "federation.participants", "training.local_steps"
    ]  # fmt: skip


def test_a_reference_that_a_study_of_the_family_has_calibrated_is_used(options, out):
    from fedhv import compare

    compare("cifar10-mnist-b", ["fedhv"], [0], out=out / "cifar10-mnist-b", jobs=1, engine="sequential")
    watch = Watch()
    reproduce("main", options, Selection(("cifar10-mnist-a",), ("fedhv",), (0,)), observer=watch)
    assert [label for label, _ in watch.started] == ["fedhv seed 0"]
    assert read_reference(out / "cifar10-mnist-a/reference.toml") == read_reference(
        out / "cifar10-mnist-b/reference.toml"
    )


def test_the_papers_reference_can_be_chosen_and_does_not_mix_with_a_calibrated_one(options, out):
    selection = Selection(("multimnist",), ("fedhv",), (0,))
    paper = Options(out, jobs=1, engine="sequential", reference="paper")
    watch = Watch()
    reproduce("main", paper, selection, observer=watch)
    assert read_reference(out / "multimnist/fedhv-seed0/reference.toml").values == (2.5, 2.75)
    assert [label for label, _ in watch.started] == ["fedhv seed 0"]
    with pytest.raises(InputError, match=r"with `--reference calibrated`\. Found another reference"):
        reproduce("main", options, selection)
    with pytest.raises(InputError, match=r"with `--reference ours`\. Found another reference"):
        reproduce("main", replace(paper, reference="ours"), selection)
    assert reproduce("main", options, selection, run=False).outputs[0].notes == ()


def test_the_reference_that_we_calibrated_once_can_be_chosen(out):
    ours = Options(out, jobs=1, engine="sequential", reference="ours")
    watch = Watch()
    reproduce("main", ours, Selection(("multimnist",), ("fedhv",), (0,)), observer=watch)
    reference = read_reference(out / "multimnist/fedhv-seed0/reference.toml")
    assert reference.values == (2.6, 2.8)
    assert reference.provenance.source == "multimnist, ours"
    assert [label for label, _ in watch.started] == ["fedhv seed 0"]


def test_references_stand_beside_the_papers_with_their_diagnostics(options, out):
    made = reproduce("references", options, Selection(("multimnist", "celeba5-a"), seeds=(0, 1)))
    ours = read_reference(out / "calibration/multimnist/reference.toml")
    rows = table(made, "references")
    assert [row["family"] for row in rows] == ["multimnist"] * 2 + ["celeba5"] * 5
    assert rows[0]["ours"] == ours.values[0]
    assert rows[0]["relative_difference_percent"] == pytest.approx(100 * (ours.values[0] / 2.45894 - 1))
    assert rows[2]["ours"] is None  # in miniature it has two tasks, not five
    row = table(made, "reference-diagnostics")[0]
    slack = [s for seed in (0, 1) for r in records(out / f"multimnist/fedhv-seed{seed}") for s in r["slack"]]
    assert row["ours_minimum_report_slack"] == min(slack)
    assert (row["ours_floor_activations"], row["ours_out_of"]) == (0, 8)
    assert (row["paper_minimum_report_slack"], row["paper_out_of"]) == (0.1463, 1200)
    weights = list(csv.DictReader((out / "tables/narrowed/weights-multimnist.csv").open()))
    assert [(row["round"], row["task"]) for row in weights] == [
        ("1", "colour"), ("1", "größe"), ("2", "colour"), ("2", "größe")
    ]  # fmt: skip
    assert float(weights[0]["mean"]) == float(weights[0]["seed 0"]) == 0.5
    second = [float(weights[2][key]) for key in ("seed 0", "seed 1")]
    assert float(weights[2]["mean"]) == pytest.approx(sum(second) / 2)


def test_a_reference_of_another_rule_is_refused(options, out, six):
    selection = Selection(("multimnist",), ("fedhv",), (0,))
    reproduce("main", options, selection)
    six["multimnist"].write_text(six["multimnist"].read_text().replace("margin = 0.2", "margin = 0.3"))
    with pytest.raises(InputError, match=r"`calibration\.margin` should be 0\.3, found 0\.2"):
        reproduce("main", options, selection)
    with pytest.raises(InputError, match=r"should have the calibration of setting multimnist\. Found another one"):
        reproduce("references", options, Selection(("multimnist",), ("uniform",)))


# --- measures ---------------------------------------------------------------------------------------------


def test_last_ten_averages_the_last_ten_evaluations(options, out):
    made = reproduce("last10", options, Selection(("multimnist",), ("fsmgda",), (0,), rounds=12))
    values = [r["evaluation"]["mean_accuracy"] for r in records(out / "multimnist/fsmgda-seed0")]
    assert len(values) == 12
    assert table(made, "last10")[0]["ours_mean"] == pytest.approx(sum(values[2:]) / LAST)


def test_efficiency_counts_rounds_calibration_and_every_message(options, out):
    made = reproduce("efficiency", options, Selection(seeds=(0,)))
    rows = {(row["method"], row["metric"]): row for row in table(made, "efficiency")}
    history = records(out / "cifar10-mnist-b/fedhv-seed0")
    cost = read_reference(out / "cifar10-mnist-b/reference.toml").cost
    seconds = cost.seconds + sum(record["seconds"] for record in history)
    assert rows["fedhv", "seconds"]["ours_mean"] == pytest.approx(seconds)
    assert rows["fedhv", "seconds"]["paper_mean"] == 1899.25
    assert rows["fedhv", "relative_time"]["ours_mean"] == 1.0
    assert rows["fsmgda", "relative_time"]["paper_mean"] == pytest.approx(2824.73 / 1899.25)
    d = 6 * 8 + 8 + 8 * 3 + 3 + 8 * 4 + 4
    assert rows["uniform", "downlink_megabytes"]["ours_mean"] == pytest.approx(10 * 4 * d / 1e6)
    assert rows["fedhv", "uplink_megabytes"]["ours_mean"] == pytest.approx(10 * 4 * (d + 2) / 1e6)
    assert rows["uniform", "total_megabytes"]["paper_mean"] == 138.1
    assert rows["uniform", "seconds"]["paper_mean"] is None


def test_shares_of_a_stacked_computation_are_no_contest(options, out):
    alone = reproduce("efficiency", options, Selection(seeds=(0,)))
    for path in out.glob("cifar10-mnist-b/*/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"engine": "stacked", "shared_clock": 4}))
    shared = reproduce("efficiency", options, Selection(seeds=(0,)), run=False)
    rows = {(row["method"], row["metric"]): row for row in table(shared, "efficiency")}
    assert rows["fedhv", "seconds"]["ours_mean"] > 0
    assert rows["fedhv", "seconds"]["ours_rank"] is None
    contests = [{row["metric"] for row in table(made, "efficiency-rankings")} for made in (alone, shared)]
    assert contests[0] - contests[1] == {"seconds", "relative_time"}


def test_runs_of_fedhv_with_different_references_are_noted(options, out):
    selection = Selection(("multimnist",), ("fedhv",), (0, 42))
    reproduce("main", options, selection)
    path = out / "multimnist/fedhv-seed0/reference.toml"
    replace(read_reference(path), values=(9.0, 9.0)).write(path)
    made = reproduce("main", options, selection, run=False)
    assert made.outputs[0].notes[-1] == "multimnist: its runs of fedhv have different references"


# --- what is there is not what is planned -----------------------------------------------------------------


def test_runs_of_another_length_are_not_taken_for_these(options, out):
    selection = Selection(("multimnist",), ("uniform",), (0,))
    reproduce("main", options, selection)
    longer = Selection(("multimnist",), ("uniform",), (0,), rounds=3)
    with pytest.raises(InputError, match=r"`training.rounds` should be 3, found 2. Choose another --out"):
        reproduce("main", options, longer)
    made = reproduce("main", options, longer, run=False)
    left_out = "multimnist/uniform-seed0 is left out: `training.rounds` should be 3, found 2"
    assert made.outputs[0].notes[-1].startswith(left_out)


def test_runs_from_before_an_option_existed_count(options, out):
    selection = Selection(("multimnist",), ("uniform",), (0,))
    reproduce("main", options, selection)
    config = out / "multimnist/uniform-seed0/config.toml"
    older = [line for line in config.read_text().splitlines() if not line.startswith("explosion")]
    assert len(older) < len(config.read_text().splitlines())
    config.write_text("\n".join(older))
    made = reproduce("main", options, selection, run=False)
    assert [row["ours_runs"] for row in table(made, "main")] == [1, 1]


def test_a_damaged_run_is_left_out_and_named(options, out):
    selection = Selection(("multimnist",), ("uniform", "fsmgda"), (0,))
    reproduce("main", options, selection)
    (out / "multimnist/uniform-seed0/summary.json").write_text("{")
    made = reproduce("main", options, selection, run=False)
    assert "multimnist/uniform-seed0 is left out" in made.outputs[0].notes[-1]
    assert [row["ours_runs"] for row in table(made, "main")] == [0, 1] * 2
    with pytest.raises(InputError, match="cannot be resumed"):
        reproduce("main", options, selection)


def test_a_finished_run_whose_history_was_cut_is_damaged(options, out):
    selection = Selection(("multimnist",), ("uniform", "fsmgda"), (0,))
    reproduce("main", options, selection)
    history = out / "multimnist/uniform-seed0/history.jsonl"
    history.write_text(history.read_text().splitlines(keepends=True)[0])
    made = reproduce("main", options, selection, run=False)
    reason = "multimnist/uniform-seed0 is left out: its history has 1 of the 2 rounds of its summary"
    assert reason in made.outputs[0].notes
    assert [row["ours_runs"] for row in table(made, "main")] == [0, 1] * 2


def test_a_run_with_private_reports_is_not_taken_for_the_papers(options, out):
    selection = Selection(("multimnist",), ("uniform",), (0,))
    reproduce("main", options, selection)
    config = out / "multimnist/uniform-seed0/config.toml"
    tables = toml.read(config)
    for reports, runs in (({"clip": 0.0, "noise": 0.0}, 1), ({"clip": 3.0, "noise": 5.0}, 0)):
        tables["run"]["reports"] = reports
        config.write_text(toml.write(tables))
        made = reproduce("main", options, selection, run=False)
        assert [row["ours_runs"] for row in table(made, "main")] == [runs] * 2
    assert "is left out: `run.reports.clip` should be 0.0, found 3.0" in made.outputs[0].notes[-1]


def test_a_change_of_words_makes_no_other_run(options, out, six):
    selection = Selection(("multimnist",), ("uniform",), (0,))
    reproduce("main", options, selection)
    six["multimnist"].write_text(six["multimnist"].read_text().replace("in miniature", "made small"))
    assert reproduce("main", options, selection).outputs[0].notes == ()


def test_a_run_that_diverges_leaves_the_others_alone(options, out, six):
    broken = "\n[methods.fsmgda]\nlocal_lr = 1e30\n"
    six["multimnist"].write_text(six["multimnist"].read_text() + broken)
    made = reproduce("main", options, Selection(("multimnist", "mnist-fmnist"), ("fsmgda", "fedcmoo"), (0,)))
    assert len(made.failures) == 1
    assert made.failures[0].startswith("multimnist: ")
    assert made.outputs[0].notes[1:] == ("multimnist: fsmgda seed 0",)


def test_several_benchmarks_are_looked_for_before_anything_runs(options, out, six):
    six["celeba5-a"].write_text(six["celeba5-a"].read_text().replace("problems:benchmark", "celeba5"))
    with pytest.raises(InputError, match=r"CelebA is not complete.*Or leave celeba5 out with --settings"):
        reproduce(
            "main",
            Options(out, data=str(out.parent / "nothing"), jobs=1, engine="sequential"),
            Selection(("multimnist", "celeba5-a"), ("uniform",), (0,)),
        )
    assert not out.exists()


# --- forecasts --------------------------------------------------------------------------------------------


def test_a_dry_run_lists_runs_and_calibrations_and_writes_nothing(options, out):
    listed = planned_runs("main", options, SOME)
    assert [each.name for each in listed][:3] == [
        "calibration/multimnist/seed0", "calibration/cifar10-mnist-b/seed0", "multimnist/uniform-seed0"
    ]  # fmt: skip
    assert len(listed) == 10
    assert all(each.seconds is None and each.state == "missing" for each in listed)
    assert not out.exists()


def test_time_is_estimated_from_rounds_that_do_the_same_work(options, out):
    reproduce("main", options, Selection(("cifar10-mnist-b",), ("fedhv",), (0,)))
    path = out / "cifar10-mnist-b/fedhv-seed0/history.jsonl"
    slowed = [record | {"seconds": 7.0} for record in records(path.parent)]
    path.write_text("".join(json.dumps(record) + "\n" for record in slowed))
    for history in (out / "calibration").rglob("history.jsonl"):
        history.write_text("")
    listed = {each.name: each for each in planned_runs("main", options, Selection(seeds=(0,), rounds=2))}
    assert listed["cifar10-mnist-b/fedhv-seed0"].state == "finished"
    assert listed["cifar10-mnist-a/fedhv-seed0"].seconds == 14.0  # the same benchmark, M, K and report
    assert listed["cifar10-mnist-a/uniform-seed0"].seconds is None  # no reports: other work
    sweep = {each.name: each.seconds for each in planned_runs("ablations", options, Selection(seeds=(0,)))}
    assert sweep["cifar10-mnist-b-steps20/fedhv-seed0"] is None
