"""`run`, `calibrate` and `compare` take the same arguments, settings as keywords, and return what can be looked at."""

from __future__ import annotations

import builtins
import inspect
import io
import sys
from dataclasses import replace

import pytest
from observers import Watch
from problems import everything_random, quadratic
from rich.console import Console

import fedhv
from fedhv import calibrate, compare, front, run, tune
from fedhv.interface.documented import descriptions
from fedhv.report import progress
from fedhv.report.notebook import NotebookBars
from fedhv.runs.config import ARGUMENTS, Setting, as_overrides, keywords

OPTIONS = {"participants": 3, "local_steps": 1, "batch_size": 4, "quiet": True}


def arguments(call):
    return inspect.signature(call).parameters


@pytest.mark.parametrize(
    ("call", "like", "own"),
    [
        (calibrate, run, ()),
        (compare, run, ("engine",)),
        (tune, compare, ("seeds",)),
        (front, compare, ("methods", "seeds")),
    ],
)
def test_an_argument_is_the_same_in_all_calls(call, like, own):
    shared = {"what", "rounds", "out", "engine", "device", "precision", "override", "data", "observer", "quiet"}
    both = set(arguments(call)) & set(arguments(like))
    assert shared | {"settings"} <= both
    for name in both - set(own):
        assert arguments(call)[name] == arguments(like)[name]


@pytest.mark.parametrize("call", [run, calibrate, compare, tune, front], ids=lambda call: call.__name__)
def test_every_argument_is_documented_in_the_order_of_the_signature(call):
    assert list(descriptions(call)) == list(arguments(call))


def test_a_keyword_that_is_also_an_argument_is_the_argument():
    taken = {name for call in (run, calibrate, compare) for name in arguments(call)}
    assert taken & set(keywords()) <= ARGUMENTS


def test_every_plain_key_of_a_setting_is_a_keyword():
    known = keywords()
    assert known["participants"] == ["federation.participants"]
    assert known["local_steps"] == ["training.local_steps"]
    assert known["rounds"] == ["training.rounds", "calibration.rounds"]
    assert {path.split(".")[0] for paths in known.values() for path in paths} <= set(Setting.__dataclass_fields__)


@pytest.mark.parametrize(
    ("given", "override"),
    [
        ({"participants": 3}, "federation.participants=3"),
        ({"warm_up": 3}, "training.schedule.warm_up=3"),
        ({"sampling": "replacement"}, 'training.sampling="replacement"'),
        ({"samples_per_client": [4, 5]}, "federation.samples_per_client=[4, 5]"),
    ],
)
def test_a_keyword_is_an_override(given, override):
    assert as_overrides(given) == [override]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"particpants": 3}, r"Unknown keyword 'particpants'\. Did you mean 'participants'\?$"),
        (
            {"local_lr": 0.1},
            r"Unknown keyword 'local_lr'\. Hyper-parameters belong to the method: FedHV\(local_lr=…\)\.$",
        ),
        ({"round": 3}, r"Unknown keyword 'round'\. Did you mean 'rounds'\?$"),
        (
            {"seeds": [1]},
            r"Unknown keyword 'seeds'\. Did you mean 'seed'\? For the setting's key write "
            r"override=\['calibration\.seeds=…'\]\.$",
        ),
        ({"every": 2}, r"Write override=\['training\.schedule\.every=…' or 'evaluation\.every=…'\]\.$"),
        ({"alpha": None}, r"`alpha` should be a number, text or a list of them\. Found None\.$"),
        ({"participants": "three"}, r"`federation\.participants` should be a whole number\. Found 'three'\.$"),
        ({"clients": 30}, r"`federation\.clients` has no effect"),
    ],
)
def test_a_keyword_that_means_nothing_here_is_refused(given, message):
    with pytest.raises(fedhv.InputError, match=message):
        fedhv.run(everything_random(), "uniform", rounds=1, **given)


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (compare, {"seed": 0}, r"'seeds'\? For the setting's key write override=\['federation\.seed=…'\]\.$"),
        (compare, {"method": ["fedhv"]}, r"'methods'\?$"),
        (tune, {"trial": 2}, r"'trials'\?$"),
        (front, {"point": 3}, r"'points'\?$"),
        (calibrate, {"margins": 0.1}, r"'margin'\?$"),
    ],
)
def test_a_mistyped_argument_is_recognised(call, given, meant):
    with pytest.raises(fedhv.InputError, match=f"^Unknown keyword '{next(iter(given))}'\\. Did you mean {meant}"):
        call(everything_random(), **given)


def test_keywords_give_the_run_that_overrides_give():
    one = fedhv.run(everything_random(), "uniform", rounds=2, **OPTIONS)
    changes = ["federation.participants=3", "training.local_steps=1", "training.batch_size=4"]
    other = fedhv.run(everything_random(), "uniform", rounds=2, override=changes)
    assert one.config == other.config
    assert [each.weights for each in one.rounds] == [each.weights for each in other.rounds]
    assert one.tasks == other.tasks


def test_a_reference_is_calibrated_by_a_settings_name_and_for_a_problem(setting_file):
    named = fedhv.calibrate(str(setting_file), rounds=2, seeds=[3], quiet=True)
    assert (named.provenance.rounds, named.provenance.seeds) == (2, (3,))
    own = fedhv.calibrate(everything_random(), rounds=1, margin=0.5, **OPTIONS)
    assert own.provenance.margin == 0.5
    assert own.tasks == ("colour", "größe")
    slow = fedhv.calibrate(everything_random(), fedhv.FedHV(local_lr=0.01), rounds=1, **OPTIONS)
    assert slow.provenance.local_lr == 0.01


@pytest.mark.parametrize("change", [{}, {"scale": "initial"}, {"validation": 0.5}, {"missing": 0.5}])
def test_a_problem_is_calibrated_as_a_run_of_it_is(change):
    problem = everything_random()
    run = fedhv.run(problem, "fedhv", rounds=1, override=["calibration.rounds=2"], **OPTIONS, **change)
    assert fedhv.calibrate(problem, rounds=2, **OPTIONS, **change).values == run.reference.values


def test_a_problem_with_scales_to_measure_is_calibrated():
    problem = everything_random()
    scaled = replace(problem, tasks=tuple(replace(task, scale="initial") for task in problem.tasks))
    reference = fedhv.calibrate(scaled, rounds=2, **OPTIONS)
    assert reference.values == fedhv.calibrate(problem, rounds=2, scale="initial", **OPTIONS).values


def test_a_calibration_is_kept_where_it_is_asked_to(tmp_path):
    first = fedhv.calibrate(everything_random(), rounds=2, out=tmp_path / "c", **OPTIONS)
    watch = Watch()
    again = fedhv.calibrate(everything_random(), rounds=2, out=tmp_path / "c", observer=watch, **OPTIONS)
    assert again.values == first.values
    assert watch.started == [("calibration seed 0", 2)]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("interface") / "s"
    return fedhv.compare(everything_random(), ["uniform", "fsmgda"], [0, 1], rounds=2, out=out, **OPTIONS)


def test_a_run_and_a_study_are_shown_in_one_line_and_as_html(study):
    assert repr(study[0]).startswith("<Run: uniform on random, seed 0, 2 rounds: mean ")
    assert repr(study).startswith("<Study: 4 runs on random (uniform, fsmgda), '")
    assert "\n" not in repr(study) + repr(study[0])
    assert "größe" in study[0]._repr_html_()
    assert "fsmgda" in study._repr_html_()


def test_a_run_that_is_going_on_says_how_far_it_is(tmp_path):
    with pytest.raises(fedhv.Interrupted):
        fedhv.run(everything_random(), "uniform", rounds=3, out=tmp_path / "r", observer=Watch(2), **OPTIONS)
    run = fedhv.read_run(tmp_path / "r")
    assert repr(run).startswith("<Run: uniform on random, seed 0, 2 of 3 rounds, '")
    assert run.ended is None
    with pytest.raises(fedhv.InputError, match="holds no finished run"):
        _ = run.worst_accuracy


def test_a_study_is_a_sequence_of_its_runs(study):
    assert len(study) == 4
    assert [(run.method, run.seed) for run in study] == [("uniform", 0), ("fsmgda", 0), ("uniform", 1), ("fsmgda", 1)]
    assert study[1:3] == study.runs[1:3]


def test_the_table_of_a_study_is_that_of_the_command(study):
    text = study.table()
    assert "random, seeds 0, 1, 2 rounds" in text
    assert "MeanAcc" in text
    assert "mean ± sample standard deviation" in text


def test_a_study_is_a_data_frame(study, monkeypatch):
    frame = pytest.importorskip("pandas") and study.to_frame()
    assert list(frame["method"]) == ["uniform", "fsmgda", "uniform", "fsmgda"]
    assert frame["tasks/größe/accuracy"][1] == study[1].tasks[1].accuracy
    real = builtins.__import__

    def without_pandas(name, *rest, **named):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(fedhv.FedHVError, match=r"^`to_frame` needs pandas: pip install pandas\.$"):
        study.to_frame()


def test_a_data_frame_has_the_references():
    pytest.importorskip("pandas")
    methods = ["uniform", fedhv.FedHV(reference=(30.0, 20.0))]
    frame = fedhv.compare(quadratic(), methods, [0], rounds=1, quiet=True).to_frame()
    assert list(frame["reference/right"].fillna(0)) == [0, 20]
    assert "reference" not in frame


def test_a_study_writes_its_report(study, tmp_path):
    page = study.report(tmp_path / "report", figures=False)
    assert page == tmp_path / "report" / "index.html"
    assert "FSMGDA" in page.read_text(encoding="utf-8")


def test_without_a_folder_a_study_is_kept_in_memory():
    study = fedhv.compare(everything_random(), ["uniform"], [0], rounds=2, **OPTIONS)
    (run,) = study
    assert (study.folder, run.folder, len(run.rounds)) == (None, None, 2)
    assert set(run.state_dict) == set(fedhv.run(everything_random(), "uniform", rounds=1, **OPTIONS).state_dict)
    with pytest.raises(fedhv.InputError, match=r"Set `out` of `fedhv\.compare`"):
        study.report()


def test_progress_is_shown_in_a_terminal_and_a_notebook_and_nowhere_else(monkeypatch):
    assert type(progress.shown()) is fedhv.Observer  # the output of a test is neither
    monkeypatch.setattr(sys, "stdout", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    assert isinstance(progress.shown(), progress.RunBars)
    assert type(progress.shown(quiet=True)) is fedhv.Observer
    monkeypatch.setattr(progress, "Console", lambda **options: Console(force_jupyter=True, **options))
    assert isinstance(progress.shown(), NotebookBars)


def test_nothing_is_printed_where_the_output_is_no_terminal(capfd):
    fedhv.run(everything_random(), "uniform", rounds=1, participants=3, batch_size=4)
    assert capfd.readouterr() == ("", "")


def test_a_study_shows_rates_that_differ():
    methods = [fedhv.Uniform(), fedhv.FSMGDA(local_lr=0.05)]
    study = fedhv.compare(everything_random(), methods, [0], rounds=1, quiet=True)
    assert "(uniform 1/0.1, fsmgda 1/0.05)" in repr(study)
    for shown in (study.table(), study._repr_html_()):
        assert "Learning rates η_g/η_ℓ differ: uniform 1/0.1, fsmgda 1/0.05." in shown
