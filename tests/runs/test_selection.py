"""Models are chosen on examples that clients hold out; the test examples are looked at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mixed import CHANGES, mixed
from observers import Watch
from runs_on_disk import contents, save_every_round

import fedhv
from fedhv import EarlyStop, InputError, Uniform
from fedhv.engines.base import Engine
from fedhv.engines.private import privately
from fedhv.problem.holdout import with_validation
from fedhv.problem.metrics import METRICS
from fedhv.protocol.evaluation import Evaluation, OverClients, TaskScore
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.requests.evaluate import EvaluateReply
from fedhv.runs.record import read_run
from fedhv.simulation.selection import selection_score
from fedhv.support.errors import Interrupted

BEST = [*CHANGES, "evaluation.keep=best"]
LOUD = Uniform(local_lr=0.8)  # its scores go up and down


def play(override=BEST, rounds=8, method=LOUD, problem=None, **options):
    return fedhv.run(problem or mixed(), method, rounds=rounds, override=override, seed=1, **options)


def scores(run):
    evaluations = [round.evaluation for round in run.rounds if round.evaluation is not None]
    return [selection_score(each, evaluations[0]) for each in evaluations]


def test_the_best_round_on_validation_is_kept_and_its_model_tested():
    run = play()
    found = scores(run)
    best = 1 + found.index(max(found))
    assert best < 8, "the last round should not be the best, or this test shows nothing"
    assert run.selection.round == best
    assert run.selection.score == max(found)
    assert run.selection.validation == run.rounds[best - 1].evaluation
    same = play([*CHANGES], rounds=best)
    assert all(torch.equal(run.state_dict[name], same.state_dict[name]) for name in same.state_dict)
    assert run.tasks == same.tasks
    assert run.summary.rounds == 8


def test_the_test_set_is_looked_at_once(monkeypatch):
    looked = []
    before = Engine.evaluate
    monkeypatch.setattr(Engine, "evaluate", lambda *given: looked.append(1) or before(*given))
    run = play()
    assert len(looked) == 1
    assert all(round.evaluation.as_dict().items() <= round.validation.items() for round in run.rounds)
    assert run.tasks != run.selection.validation.tasks


def test_patience_ends_a_run_and_keeps_what_an_unbroken_run_had():
    whole = play(rounds=20)
    short = play([*BEST, "evaluation.patience=3"], rounds=20)
    assert short.summary.rounds < 20
    assert short.selection.stopped == "patience"
    assert short.summary.rounds == short.selection.round + 3
    found = scores(whole)[: short.summary.rounds]
    assert short.selection.round == 1 + found.index(max(found))


@pytest.mark.parametrize("after", [2, 5])
def test_a_resumed_run_keeps_the_same_model(after, tmp_path, monkeypatch):
    save_every_round(monkeypatch)
    patient = [*BEST, "evaluation.patience=3"]
    play(patient, out=tmp_path / "whole", engine="sequential")
    with pytest.raises(Interrupted):
        play(patient, out=tmp_path / "broken", engine="sequential", observer=Watch(after))
    play(patient, out=tmp_path / "broken", engine="sequential", resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "broken")


def test_the_best_model_of_a_checkpoint_is_of_its_own_rounds(tmp_path, monkeypatch):
    """A crash may lose rounds, and with them a better model: the rounds are then played again."""
    play(out=tmp_path / "whole", engine="sequential")
    save_every_round(monkeypatch)
    with pytest.raises(Interrupted):
        play(out=tmp_path / "broken", engine="sequential", observer=Watch(5))
    broken = tmp_path / "broken"
    (broken / "checkpoint-previous.safetensors").replace(broken / "checkpoint.safetensors")
    play(out=broken, engine="sequential", resume=True)
    assert contents(tmp_path / "whole") == contents(broken)


@pytest.mark.parametrize("after", [3, 4])
def test_an_observer_that_stops_a_run_gets_it_back(after, tmp_path):
    override = [each for each in CHANGES if "validation" not in each]
    run = play([*override, "evaluation.every=2"], out=tmp_path / "run", observer=Watch(after, error=EarlyStop))
    assert run.summary.rounds == after == len(run.rounds)
    assert run.selection.stopped == "observer"
    same = play([*override, "evaluation.every=1"], rounds=after)
    assert run.tasks == same.tasks, "the evaluation is that of the last model, also between evaluations"
    assert read_run(tmp_path / "run").summary == run.summary
    again = play([*override, "evaluation.every=2"], out=tmp_path / "run", resume=True)
    assert again.summary.rounds == after


def test_without_a_share_nothing_is_chosen_and_nothing_is_written_about_it():
    run = play([each for each in CHANGES if "validation" not in each], rounds=2)
    assert run.selection is None
    assert "selection" not in run.summary.as_dict()
    assert run.history[-1]["evaluation"]["tasks"] == [task.as_dict() for task in run.tasks]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["evaluation.keep=best"], "needs examples that clients hold out. Found none; set `federation.validation`"),
        (["evaluation.patience=2"], "`evaluation.patience = 2` needs examples that clients hold out"),
        (["evaluation.keep=first"], "`evaluation.keep` should be 'last' or 'best'. Found 'first'"),
        (["evaluation.patience=-1"], "`evaluation.patience` should be at least 0"),
        (["evaluation.keep=best", "evaluation.every=0"], "`evaluation.every` should be at least 1"),
    ],
)
def test_bad_input_is_one_line(changes, said):
    with pytest.raises(InputError) as caught:
        play([each for each in CHANGES if "validation" not in each] + changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_held_out_examples_that_define_no_metric_are_named():
    with pytest.raises(fedhv.FedHVError, match=r"Task 'kind': the held-out examples of at least one client should def"):
        play([*[each for each in BEST if "validation" not in each], "federation.validation=0.01"])


def test_scores_of_different_direction_and_unit_have_one_scale():
    def at(auc, rmse):
        tasks = [TaskScore("a", 50.0, 1.0, {"roc_auc": auc}), TaskScore("b", 0.0, 1.0, {"rmse": rmse}, ("rmse",))]
        return Evaluation.of(tasks)

    first = at(0.5, 40.0)
    assert selection_score(first, first) == pytest.approx((0.5 - 1.0) / 2)
    assert selection_score(at(0.7, 20.0), first) == pytest.approx((0.7 - 0.5) / 2)
    assert selection_score(at(0.7, 30.0), first) < selection_score(at(0.7, 20.0), first)


# --- scores at the clients --------------------------------------------------------------------------------


def filled(row):
    return [-1.0 if value is None else value for value in row]


def test_clients_compute_the_main_metric_on_what_they_hold_out():
    problem = with_validation(mixed(), 0.3, seed=0)
    changes = [each for each in CHANGES if "validation" not in each]
    run = play(changes, rounds=2, problem=problem)
    record = run.history[-1]["validation"]
    model = problem.model()
    model.load_state_dict(run.state_dict)
    measured = []
    for k, indices in enumerate(problem.validation):
        held = problem.train[torch.from_numpy(indices)]
        with torch.no_grad():
            kind, stay = model(held.inputs)
        auc = METRICS["roc_auc"].function(kind, held.targets[0])
        rmse = None if k == 1 else METRICS["rmse"].function(stay, held.targets[1])
        measured.append((auc, rmse, len(indices)))
        assert filled(record["clients"]["metric"][k]) == pytest.approx(filled([auc, rmse]), rel=1e-4)
    kind, stay = record["tasks"]
    counts = np.array([n for _, _, n in measured])
    assert kind["metrics"] == {
        "roc_auc": pytest.approx(np.average([a for a, _, _ in measured], weights=counts), rel=1e-5)
    }
    assert list(stay["metrics"]) == ["rmse"]
    assert stay["lower"] == ["rmse"]
    over = {each["task"]: each for each in record["over_clients"]}
    errors = [rmse for _, rmse, _ in measured if rmse is not None]
    assert over["stay"]["clients"] == 3
    assert over["stay"]["score"] == "rmse"
    assert over["stay"]["mean"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert over["stay"]["worst_decile"] == pytest.approx(max(errors), rel=1e-5)
    assert over["kind"]["worst_decile"] == pytest.approx(min(a for a, _, _ in measured), rel=1e-5)
    assert over["kind"]["deviation"] == pytest.approx(np.std([a for a, _, _ in measured], ddof=1), rel=1e-4)
    assert [each.as_dict() for each in run.selection.over_clients] == record["over_clients"]


@pytest.mark.parametrize("engine", ["parallel", "stacked"])
def test_engines_agree_on_metrics(engine):
    here, there = (play(rounds=3, engine=name).history[-1]["validation"] for name in ("sequential", engine))
    for a, b in zip(here["clients"]["metric"], there["clients"]["metric"], strict=True):
        assert filled(a) == pytest.approx(filled(b), rel=1e-3)
    assert here["uplink_bytes"] == there["uplink_bytes"] == 4 * 5 * 2 * 4


def test_the_worst_decile_is_of_a_tenth_of_the_clients():
    found = OverClients.of("a", "accuracy", False, [float(n) for n in range(25)])
    assert found.worst_decile == 1.0
    assert found.mean == 12.0
    assert OverClients.of("a", "rmse", True, [1.0, 2.0, 9.0]).worst_decile == 9.0
    assert OverClients.of("a", "rmse", True, [1.0]).deviation is None


def test_protected_clients_measure_no_metric():
    run = play(rounds=2, engine=privately(ReportPrivacy(3.0, 0.1)))
    assert "metric" not in run.history[-1]["validation"]["clients"]
    assert {each.score for each in run.selection.over_clients} == {"accuracy"}
    one = torch.ones(2)
    sent = ReportPrivacy(3.0, 0.1).protect(EvaluateReply(one, one, one, one, one), np.random.default_rng(0))
    assert sent.metrics.tolist() == sent.measured.tolist() == [0.0, 0.0]


def test_tasks_without_metrics_are_judged_by_accuracy():
    run = play(problem=mixed(metrics=False), rounds=2)
    assert {each.score for each in run.selection.over_clients} == {"accuracy"}
    assert "metric" not in run.history[-1]["validation"]["clients"]
    assert math.isfinite(run.selection.score)


def test_the_choice_is_recorded_where_rounds_are_evaluated_on_all_held_out_examples():
    run = play([*BEST, "evaluation.on=validation", "evaluation.patience=3"], rounds=20)
    found = scores(run)
    assert (run.selection.keep, run.selection.round) == ("best", 1 + found.index(max(found)))
    assert run.selection.stopped == "patience"
    assert run.tasks == run.rounds[run.selection.round - 1].evaluation.tasks
