"""Tuning: equal budgets, successive halving, and a result that a user can run."""

import json
import math
from dataclasses import replace

import pytest
from mixed import CHANGES, mixed
from observers import Watch
from problems import everything_random

from fedhv import FedHVError, InputError, Metric, Uniform, compare, load_setting, run, tune
from fedhv.methods.knobs import KNOBS
from fedhv.methods.parts.watch import ReferenceBreached
from fedhv.methods.rules.moving import MovingFedHV
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.protocol.screening import TooFewReplies
from fedhv.runs.record import read_run
from fedhv.runs.resolve import resolve
from fedhv.runs.study import StudyFailed, run_study
from fedhv.runs.tuning import Trial, best, criterion, halton, rungs, trials_of
from fedhv.runs.variants import Variant
from fedhv.simulation.observer import Observer


def test_haltons_sequence_is_van_der_corputs_in_base_two():
    assert [halton(i, 2) for i in range(1, 5)] == [0.5, 0.25, 0.75, 0.125]
    assert halton(5, 3) == pytest.approx(2 / 3 + 1 / 9)


def test_the_first_trial_has_the_settings_values_and_every_method_the_same_relative_rates():
    a = trials_of(Uniform(server_lr=1.0, local_lr=0.1), 5, {})
    b = trials_of(MovingFedHV(server_lr=2.0, local_lr=0.3), 5, {})
    assert a[0].values == {"local_lr": 0.1, "server_lr": 1.0}
    assert b[0].values == {"local_lr": 0.3, "server_lr": 2.0, "factor": 1.5}
    for one, other in zip(a[1:], b[1:], strict=True):
        assert one.values["local_lr"] / 0.1 == pytest.approx(other.values["local_lr"] / 0.3, rel=1e-3)
        assert other.method.factor == other.values["factor"] > 1
    assert len({trial.values["factor"] for trial in b}) == 5


def test_a_range_replaces_the_default_one():
    tried = [t.values["local_lr"] for t in trials_of(Uniform(), 9, {"local_lr": (1.0, 2.0)})[1:]]
    assert min(tried) >= 1
    assert max(tried) <= 2


def test_rungs_keep_a_third_for_three_times_as_many_rounds():
    assert rungs(9, 90, 5) == [(9, 10), (3, 30), (1, 90)]
    assert rungs(1, 70, 5) == [(1, 70)]
    assert rungs(27, 4, 2)[-1][1] == 4  # too few rounds for all rungs


def test_finalists_have_all_rounds():
    assert rungs(9, 90, 5, finalists=3) == [(9, 30), (3, 90)]
    assert rungs(9, 90, 5, finalists=2) == [(9, 10), (3, 30), (2, 90)]
    assert rungs(9, 90, 5, finalists=9) == [(9, 90)]


def test_a_trial_that_diverged_is_never_the_best():
    trials = [Trial("a", Uniform(), {}, score=float("-inf")), Trial("b", Uniform(), {}, score=1.0)]
    assert best(trials, 1)[0].name == "b"


def test_every_knob_is_a_field_of_its_method():
    from dataclasses import fields

    from fedhv.methods import method_class

    for name, knob in KNOBS.items():
        if not name.startswith("torchjd:"):
            assert knob.key in {each.name for each in fields(method_class(name))}
            assert knob.at(0) == knob.low
            assert knob.at(1) == pytest.approx(knob.high)


def test_a_paused_study_goes_on_and_ends_like_an_uninterrupted_one(setting_file, tmp_path):
    setting, problem = resolve(str(setting_file), rounds=4)
    variants = [Variant("a", Uniform(server_lr=1.0, local_lr=0.1)), Variant("b", Uniform(server_lr=1.0, local_lr=0.2))]
    for until in (2, 4):
        run_study(setting, problem, variants, [0], tmp_path, until=until, jobs=1, observer=Watch())
        assert len(read_run(tmp_path / "a" / "uniform-seed0").rounds) == until
    whole = run(str(setting_file), Uniform(server_lr=1.0, local_lr=0.2), rounds=4)
    paused = read_run(tmp_path / "b" / "uniform-seed0")
    assert paused.summary.tasks == whole.summary.tasks


def test_tuning_gives_every_method_as_many_trials_and_writes_a_setting(setting_file, tmp_path):
    watch = Watch()
    found = tune(str(setting_file), ["uniform", "fedhv", "stch"], 3, rounds=3, out=tmp_path, jobs=1, observer=watch)
    per_method = {name: sum(t.method.label == name for t in found.trials) for name in found.methods}
    assert per_method == {"uniform": 3, "fedhv": 3, "stch": 3}
    assert sum("Calibrating" in text for text in watch.said) == 1
    kept = load_setting(str(tmp_path / "tuned.toml"))
    assert kept.method("stch").mu == found.best("stch").values["mu"]
    assert kept.training.rounds == load_setting(str(setting_file)).training.rounds
    assert kept.evaluation.on == "test"
    assert kept.federation.validation == 0.0
    told = json.loads((tmp_path / "tune.json").read_text())
    assert sum(trial["chosen"] for trial in told["trials"]) == 3
    again = Watch()
    same = tune(str(setting_file), ["uniform", "fedhv", "stch"], 3, rounds=3, out=tmp_path, jobs=1, observer=again)
    assert same.as_dict() == found.as_dict()
    assert not any("Calibrating" in text for text in again.said)


def test_the_best_of_the_finalists_after_all_rounds_is_chosen(setting_file, tmp_path):
    found = tune(
        str(setting_file), ["uniform"], 3, finalists=2, rounds=3, out=tmp_path, jobs=1, override=["evaluation.every=1"]
    )
    assert found.rungs == ((3, 1), (2, 3))
    ended = {t.name: t.score for t in found.trials if t.rounds == 3}
    assert len(ended) == 2
    assert found.best("uniform").name == max(ended, key=lambda name: ended[name])
    assert "3 × 1 rounds, 2 × 3 rounds" in (tmp_path / "tuned.toml").read_text()


class Bars(Observer):
    """Keeps how far runs are, and the rounds of their bars."""

    def __init__(self):
        self.states, self.started = [], []

    def start(self, label, rounds, done=0):
        self.started.append((label, done, rounds))

    def runs(self, states):
        self.states.append({state.label: (state.done, state.rounds) for state in states})


@pytest.mark.parametrize(("engine", "jobs"), [("stacked", None), ("sequential", 1)])
def test_progress_counts_the_rounds_of_a_rung_and_names_every_trial(setting_file, tmp_path, engine, jobs):
    def tuned():
        bars, arguments = Bars(), {"out": tmp_path, "engine": engine, "jobs": jobs, "override": ["evaluation.every=1"]}
        tune(str(setting_file), ["uniform"], 3, rounds=3, observer=bars, **arguments)
        return bars

    bars, trials = tuned(), [f"uniform-{i} seed 0" for i in range(3)]
    if engine == "stacked":
        assert dict.fromkeys(trials, (1, 1)) in bars.states
    else:
        assert bars.started[:3] == [(trial, 0, 1) for trial in trials]
    assert bars.started[-1][1:] == (1, 3)
    assert tuned().started == []


def test_trials_are_judged_on_held_out_examples_not_on_the_test_examples(setting_file, tmp_path):
    tune(str(setting_file), ["uniform"], 1, rounds=2, out=tmp_path, jobs=1, validation=0.5)
    trial = read_run(tmp_path / "uniform-0" / "uniform-seed0")
    assert trial.table("setting", "evaluation")["on"] == "validation"
    _, plain = resolve(str(setting_file))
    _, held = resolve(str(setting_file), ["federation.validation=0.5", "evaluation.on=validation"])
    assert held.validation is None
    assert len(held.test) == len(plain.clients.indices) - len(held.clients.indices) > 0


def test_mistakes_in_a_tuning_are_one_line(setting_file):
    with pytest.raises(InputError, match="needs held-out examples"):
        resolve(str(setting_file), ["evaluation.on=validation"])
    with pytest.raises(InputError, match="Unknown range 'mu'"):
        tune(str(setting_file), ["uniform"], ranges={"mu": (1, 2)})
    with pytest.raises(InputError, match="two positive numbers"):
        tune(str(setting_file), ["uniform"], ranges={"local_lr": (2, 1)})
    with pytest.raises(InputError, match="two numbers above 1"):
        tune(str(setting_file), ["fedhv-moving"], ranges={"fedhv-moving.factor": (1.0, 2.0)})
    with pytest.raises(InputError, match="`by` should be one of mean_accuracy"):
        criterion("auc", resolve(str(setting_file))[1].tasks)


def evaluation(auc, rmse):
    return Evaluation.of(
        [TaskScore("kind", 0.0, 0.0, {"roc_auc": auc}), TaskScore("stay", 0.0, 0.0, {"rmse": rmse}, ("rmse",))]
    )


def test_metrics_of_different_kinds_are_judged_in_the_units_of_one_evaluation():
    by = criterion(None, mixed().tasks)
    assert by.text == "the tasks' main metrics (roc_auc, rmse)"
    by = replace(by, first=evaluation(0.5, 4.0))
    assert by.of(evaluation(0.75, 2.0)) == pytest.approx((0.75 - 2.0 / 4.0) / 2)
    assert by.of(evaluation(0.75, 2.0)) > by.of(evaluation(0.75, 3.0)) > by.of(evaluation(0.6, 3.0))


def test_a_common_metric_is_judged_in_its_own_unit_and_direction():
    _, stay = mixed().tasks
    by = criterion(None, [stay, stay])
    only = [TaskScore("stay", 0.0, 0.0, {"rmse": value}, ("rmse",)) for value in (1.0, 3.0)]
    assert (by.text, by.of(Evaluation.of(only))) == ("the tasks' main metrics (rmse)", -2.0)


def test_trials_are_judged_by_the_tasks_main_metrics(tmp_path):
    """With the larger rate ROC-AUC and RMSE improve, and MeanAcc does not."""
    found = tune(
        mixed(), ["uniform"], 2, rounds=8, out=tmp_path, jobs=1, quiet=True, ranges={"local_lr": (0.0099, 0.0101)},
        override=[*CHANGES, "methods.uniform.local_lr=1e-6", "evaluation.every=8"],
    )  # fmt: skip
    assert found.best("uniform").values["local_lr"] == pytest.approx(0.01, rel=0.02)
    assert [each.score for each in found.trials] == sorted(each.score for each in found.trials)
    assert "Chosen by the tasks' main metrics (roc_auc, rmse)" in found.how


def test_a_score_that_no_trial_has_chooses_none(tmp_path):
    problem = mixed()
    undefined = Metric("undefined", lambda outputs, targets: float("nan"), "higher")
    problem = replace(problem, tasks=tuple(replace(task, metrics=(undefined,)) for task in problem.tasks))
    with pytest.raises(FedHVError, match=r"No trial of method 'uniform' has a score: .*undefined.*--by mean_loss"):
        tune(problem, ["uniform"], 2, rounds=1, jobs=1, quiet=True, out=tmp_path, participants=2, local_steps=1)
    assert not (tmp_path / "tuned.toml").exists()
    by = {"by": "mean_loss", "participants": 2, "local_steps": 1}
    assert tune(problem, ["uniform"], 2, rounds=1, jobs=1, quiet=True, out=tmp_path, **by).methods


def test_a_trial_that_diverged_is_not_chosen_where_the_others_have_no_score(setting_file, monkeypatch):
    scores = iter([-math.inf, math.nan])
    monkeypatch.setattr("fedhv.runs.halving.score", lambda *_: next(scores))
    with pytest.raises(FedHVError, match="No trial of method 'uniform' has a score"):
        tune(str(setting_file), ["uniform"], 2, finalists=2, rounds=1, jobs=1, quiet=True)


def test_the_share_that_clients_of_ones_own_problem_hold_out_is_said():
    problem = resolve(mixed(), ["federation.validation=0.3"])[1]
    found = tune(problem, ["uniform"], 1, rounds=1, jobs=1, quiet=True, participants=2, local_steps=1)
    held = len(problem.validation.indices)
    assert found.share == held / (held + len(problem.clients.indices))
    assert " on 30% of each client's training examples" in found.how


def test_a_trial_that_ends_early_is_judged_by_its_last_evaluation(tmp_path):
    """Nothing is better than the first evaluation: every trial ends by patience after the second, before its rung."""
    same = Metric("same", lambda outputs, targets: 0.5, "higher")
    problem = replace(mixed(), tasks=tuple(replace(task, metrics=[same]) for task in mixed().tasks))
    found = tune(
        problem,
        ["uniform"],
        3,
        rounds=9,
        out=tmp_path,
        jobs=1,
        quiet=True,
        override=[*CHANGES, "evaluation.patience=1"],
    )
    assert [trial.score for trial in found.trials] == [0.5] * 3
    assert len(read_run(tmp_path / "uniform-0" / "uniform-seed0").rounds) == 2


def test_the_setting_of_ones_own_problem_says_that_it_lacks_the_problem():
    problem = everything_random()
    tuned = tune(problem, ["uniform"], trials=2, rounds=1, participants=2, local_steps=1, jobs=1, quiet=True)
    with pytest.raises(InputError, match=r"^The setting 'random' is that of your own problem, .* Give the problem"):
        compare(tuned.setting, ["uniform"], seeds=[0])
    (again,) = compare(
        problem, [tuned.best("uniform").method], [1], rounds=1, participants=2, local_steps=1, quiet=True
    )
    assert {key: again.parameters[key] for key in tuned.best("uniform").values} == tuned.best("uniform").values


def test_a_study_does_not_mix_up_two_variants_of_one_name(setting_file, tmp_path):
    setting, problem = resolve(str(setting_file))
    with pytest.raises(InputError, match="name every variant"):
        run_study(setting, problem, [Variant("a", Uniform())] * 2, [0], tmp_path, jobs=1, observer=Watch())


def test_a_trial_that_ends_early_by_patience_counts_with_the_model_that_it_keeps(setting_file, tmp_path):
    patient = ["evaluation.every=1", "evaluation.patience=1", "evaluation.keep=best"]
    rates = {"local_lr": (1e-9, 2e-9)}  # scores stay as they are: every trial ends after the second evaluation
    still = [*patient, "methods.uniform.local_lr=1e-9"]
    found = tune(str(setting_file), ["uniform"], 3, rounds=9, ranges=rates, override=still, out=tmp_path, jobs=1)
    best = read_run(tmp_path / found.best("uniform").name / "uniform-seed0")
    assert best.summary.rounds == 2
    assert best.summary.selection.stopped == "patience"
    assert found.best("uniform").score == best.summary.mean_accuracy == best.rounds[0].evaluation.mean_accuracy


class Unlucky(Uniform):
    name = "unlucky"

    def round(self, state):
        raise TooFewReplies("a client is missing")


class Watchful(Uniform):
    name = "watchful"

    def round(self, state):
        if self.local_lr != 0.1:
            raise ReferenceBreached("the slack is too small.")
        return (yield from super().round(state))


def test_a_trial_that_fails_for_another_reason_than_its_values_ends_the_tuning(setting_file):
    with pytest.raises(StudyFailed, match="a client is missing"):
        tune(str(setting_file), [Unlucky(server_lr=1.0, local_lr=0.1)], 2, rounds=1, jobs=1)
    other = {"local_lr": (1.0, 2.0)}
    found = tune(str(setting_file), [Watchful(server_lr=1.0, local_lr=0.1)], 2, rounds=1, ranges=other, jobs=1)
    assert [trial.score == -float("inf") for trial in found.trials] == [False, True]


def test_a_tuning_leaves_out_nothing_of_an_earlier_one_in_its_folder(setting_file, tmp_path):
    once = {"rounds": 1, "out": tmp_path, "jobs": 1}
    tune(str(setting_file), ["uniform"], 1, **once)
    kept = (tmp_path / "tuned.toml").read_text()
    with pytest.raises(InputError, match=r"tune\.json has uniform-0, which would be left out\. Tune these methods too"):
        tune(str(setting_file), ["stch"], 1, **once)
    assert (tmp_path / "tuned.toml").read_text() == kept
    assert tune(str(setting_file), ["stch", "uniform"], 2, **once).methods == ["stch", "uniform"]
    with pytest.raises(InputError, match=r"has stch-1, uniform-1, which"):
        tune(str(setting_file), ["stch", "uniform"], 1, **once)


def test_where_only_the_last_round_is_evaluated_all_trials_have_all_rounds(setting_file):
    once = ["evaluation.every=0"]
    found = tune(str(setting_file), ["uniform"], 3, rounds=3, override=once, ranges={"local_lr": (1e29, 1e30)}, jobs=1)
    assert found.rungs == ((3, 3),)
    assert [trial.score == -float("inf") for trial in found.trials] == [False, True, True]
