"""`fedhv diagnose`: what the theory says of a run, from its folder alone."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from observers import Watch
from problems import SETTING, benchmark, everything_random
from runs_on_disk import save_every_round
from safetensors.torch import load_file, save_file

import fedhv.problem.initial
from fedhv import EarlyStop, FedHVError, InputError, Problem
from fedhv.paper.laboratory import Quadratics
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import Cohort, LocalTraining
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.runs.checkpoint import read_checkpoint
from fedhv.theory import StepSizes, ideal_weights
from fedhv.theory.diagnosis import Examiner, diagnose
from fedhv.theory.diagnosis.verdict import verdict

ROUNDS = 6
REFERENCE = (2.0, 2.2)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished run with a checkpoint after every round, made once."""
    place = tmp_path_factory.mktemp("runs")
    (place / "small.toml").write_text(SETTING)
    with pytest.MonkeyPatch.context() as patch:
        save_every_round(patch)
        fedhv.run(str(place / "small.toml"), rounds=ROUNDS, out=place / "run", reference=REFERENCE, seed=3)
    return place / "run"


@pytest.fixture
def folder(original, tmp_path):
    """A copy of it that a test may spoil."""
    return shutil.copytree(original, tmp_path / "run")


def lines(folder):
    return (folder / "history.jsonl").read_text().splitlines(keepends=True)


# --- in plain words -------------------------------------------------------------------------------------------


def test_the_verdict_names_safety_the_floor_reports_and_weights(original):
    found = diagnose(original)
    safe, floor, reports, weights = verdict(found)
    assert safe.startswith("The reference was safe at all 3 measured models")
    assert floor == "The floor of the slacks was never used in 6 rounds: weights were those of the method."
    assert reports.startswith("Reported losses were ")
    assert weights.startswith("Weights were up to ")
    low = replace(found.models[1], slack=(0.5, -0.25), safe=False)
    broken = replace(found, models=(found.models[0], low), margins=({"floored": 1}, {"floored": 0}))
    unsafe, floored, *_ = verdict(broken)
    second = found.run.tasks[1]
    assert f"too low: after round {low.round} the loss of task '{second}' was 0.25 above it. Calibrate again" in unsafe
    assert "used in 1 of 6 rounds" in floored


def test_noisy_reports_and_late_weights_are_said(original):
    found = diagnose(original)
    model = replace(found.models[-1], report_error=0.25, slack=(1.0, 0.9), staleness=0.7)
    *_, reports, weights = verdict(replace(found, models=(model,)))
    assert "Reported losses were 0.5 off where the slack was 0.9" in reports
    assert "reports are noisy" in reports
    assert "they lag behind the losses" in weights


# --- what it finds --------------------------------------------------------------------------------------------


def test_the_stored_models_are_measured_with_all_examples_of_all_clients(original):
    found = diagnose(original)
    assert [(m.round, m.source) for m in found.models] == [(0, "start"), (ROUNDS - 1, "previous"), (ROUNDS, "newest")]
    client = Client(found.run.problem)
    call = Call(Train(found.run.start.model, report="all"), Cohort(range(6), 0, 0, LocalTraining()))
    each = np.array([client.answer(call, k).report.numpy() for k in range(6)], dtype=float)
    np.testing.assert_allclose(found.models[0].losses, each.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.models[0].loss_spread, each.std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(found.models[0].slack, np.array(REFERENCE) - each.mean(axis=0), rtol=1e-5)


def test_gradients_are_the_derivatives_of_the_mean_over_clients():
    sizes = [np.arange(10), np.arange(10, 40), np.arange(5)]  # of unequal size, and one example twice
    problem = Problem.divide(benchmark(), fedhv.Clients.of(sizes))
    look = Examiner(Client(problem))
    theta = fedhv.problem.initial.initial_model(problem.model, 0)
    gradients = look.task_gradients(theta)
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = torch.from_numpy(rng.standard_normal(len(theta))).float()
        direction /= direction.norm()
        h = 1e-2
        change = look.population(theta + h * direction).losses - look.population(theta - h * direction).losses
        np.testing.assert_allclose((gradients @ direction.double()).numpy(), change / (2 * h), atol=2e-3)


def test_every_inequality_of_the_theory_holds_along_a_replay(original):
    found = diagnose(original, replayed=True, every=1)
    assert [m.round for m in found.models] == list(range(ROUNDS + 1))
    for m in found.models:
        assert m.safe
        assert m.pareto_residual <= m.pareto_bound * (1 + 1e-9)
        assert m.fairness_gap == pytest.approx(m.gradient_norm)
        assert 0 < m.slack_floor <= m.smallest_slack
        assert m.staleness <= m.staleness_bound <= m.staleness_bound_global
        assert m.report_error_bound_orthogonal <= m.report_error_bound
    assert all(m.report_error is not None for m in found.models[:-1])
    assert found.models[-1].report_error is None  # no round has asked for it


def test_a_replay_gives_the_run_exactly_and_the_models_that_it_stored(original):
    stored, replayed = diagnose(original), diagnose(original, replayed=True, every=ROUNDS - 1)
    assert any("all 6 rounds exactly" in note for note in replayed.notes)
    assert [m.round for m in replayed.models] == [0, ROUNDS - 1, ROUNDS]
    for one, other in zip(stored.models, replayed.models, strict=True):
        assert one.losses == other.losses
        assert one.gradient_norm == pytest.approx(other.gradient_norm)
        assert one.staleness == pytest.approx(other.staleness, abs=1e-6)
    # The newest two checkpoints are one round apart: the bound needs no replay.
    assert stored.models[2].staleness_bound == pytest.approx(replayed.models[2].staleness_bound)
    assert stored.models[1].staleness_bound is None


def test_on_the_laboratory_every_number_is_the_exact_one(tmp_path):
    q = Quadratics.random(1, clients=4, examples=5, offset=0.4)
    r = q.reference(0.5) + np.array([0.0, 0.7])
    c = q.constants(cohort=2, batch_size=2, report=1, margin=0.5, floor=0.1, reference=r)
    method = q.method(c, StepSizes(local_steps=2, local_lr=0.1), 1)
    changes = ("federation.participants=2", "training.batch_size=2", "training.local_steps=2")
    fedhv.run(
        q.problem(), method, rounds=40, out=tmp_path / "lab", override=(*changes, "training.sampling=replacement")
    )
    found = diagnose(tmp_path / "lab", problem=q.problem(), replayed=True, every=1)
    np.testing.assert_allclose(found.models[0].losses, q.losses(q.start), rtol=1e-5)
    assert found.models[0].gradient_norm == pytest.approx(np.sqrt(q.squared_gradient(q.start, r)), rel=1e-5)
    assert found.models[0].staleness == pytest.approx(np.abs(ideal_weights(q.losses(q.start), r) - 0.5).sum(), rel=1e-4)
    for m in found.models:
        assert m.report_error_bound <= c.report_error_bound() * (1 + 1e-5)
        assert m.smallest_slack >= c.rho * (1 - 1e-5)
    error, bound = found.mean_report_error
    assert bound / 20 < error < 1.5 * bound
    assert found.as_dict()["mean_report_error"] == error


def test_what_a_larger_cohort_or_budget_would_change(original):
    found = diagnose(original, checkpoints=["newest"])
    by = {(a.cohort, a.report): a for a in found.alternatives}
    assert [a.ratio for a in found.alternatives if a.current] == [pytest.approx(1)]
    assert by[3, 2].current
    assert by[6, "all"].bound == by[6, "all"].bound_any == 0  # everybody reports everything
    for m, larger in ((1, 3), (3, 6)):
        assert by[larger, 2].bound < by[m, 2].bound
    for small, large in ((1, 2), (2, "all")):
        assert by[3, large].bound < by[3, small].bound
    assert by[3, "all"].report_part == 0 < by[3, 1].report_part
    own = found.models[0]
    assert by[3, 2].bound == pytest.approx(own.report_error_bound_orthogonal)
    assert by[3, 2].bound_any == pytest.approx(own.report_error_bound)


def test_margins_are_the_histories_with_the_truth_beside_them(original):
    found = diagnose(original)
    records = [json.loads(line) for line in lines(original)]
    assert [row["slack: colour"] for row in found.margins] == [record["slack"][0] for record in records]
    assert found.margins[0]["smallest_true_slack"] == found.models[0].smallest_slack
    assert found.margins[1]["smallest_true_slack"] is None
    assert found.margins[ROUNDS - 1]["smallest_true_slack"] == found.models[1].smallest_slack


def test_a_reference_below_the_losses_is_said_and_nothing_is_computed_through_it(folder, command):
    text = (folder / "reference.toml").read_text()
    (folder / "reference.toml").write_text(text.replace(str(list(REFERENCE)), "[0.5, 2.2]"))
    found = diagnose(folder, checkpoints=["start"])
    (model,) = found.models
    assert not model.safe
    assert model.slack[0] < 0
    assert model.value is model.gradient_norm is model.pareto_bound is model.slack_floor is None
    assert model.pareto_residual > 0
    done = command("diagnose", folder, "--checkpoints", "start")
    assert done.code == 0, done.err


# --- a run that is going on, or was cut -----------------------------------------------------------------------


def test_a_run_that_is_going_on_is_measured_as_far_as_it_is(folder):
    (folder / "history.jsonl").write_text("".join(lines(folder)[:4]))
    (folder / "summary.json").unlink()
    found = diagnose(folder)
    assert len(found.margins) == 4
    assert "The run has 4 of 6 rounds so far." in found.notes
    assert any("newest checkpoint is after round 6, but the history ends with round 4" in note for note in found.notes)
    assert found.models[-1].report_error is None
    assert [m.round for m in diagnose(folder, replayed=True, every=2).models] == [0, 2, 4]


def test_a_final_model_of_other_shapes_is_said_and_not_measured(folder):
    tensors = load_file(folder / "model.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].flatten()[:-1].clone()}, folder / "model.safetensors")
    for path in folder.glob("checkpoint*"):
        path.unlink()
    found = diagnose(folder)
    assert [model.source for model in found.models] == ["start"]
    assert any(f"expected `{name}` of shape" in note for note in found.notes)


def test_a_history_that_a_crash_cut_short_is_read_up_to_there_and_said(folder):
    (folder / "history.jsonl").write_text("".join(lines(folder))[:-20])
    found = diagnose(folder)
    assert len(found.margins) == 5
    assert any("incomplete: only rounds 1 to 5" in note for note in found.notes)


def test_a_broken_checkpoint_is_left_out_and_named(folder):
    (folder / "checkpoint-previous.safetensors").write_bytes(b"nonsense" * 10)
    found = diagnose(folder)
    assert [m.source for m in found.models] == ["start", "newest"]
    assert any("corrupt" in note for note in found.notes)


def test_without_a_checkpoint_the_final_model_is_measured(folder, original):
    (folder / "checkpoint.safetensors").unlink()
    assert diagnose(folder).models[-1].losses == diagnose(original).models[-1].losses


def test_without_a_checkpoint_the_weights_after_the_run_are_not_known(folder):
    (folder / "checkpoint.safetensors").unlink()
    (folder / "checkpoint-previous.safetensors").unlink()
    newest = diagnose(folder).models[-1]
    assert (newest.round, newest.staleness) == (ROUNDS, None)


def test_the_final_model_is_that_of_the_round_that_was_kept(setting_file, tmp_path):
    kept = ["federation.validation=0.3", "evaluation.keep=best", "evaluation.every=1"]
    run = fedhv.run(
        str(setting_file), fedhv.FedHV(local_lr=1e-9), rounds=ROUNDS, out=tmp_path / "run", reference=REFERENCE,
        override=kept, seed=3,
    )  # fmt: skip
    assert run.selection.round == 1, "of equal rounds the first is kept"
    for checkpoint in (tmp_path / "run").glob("checkpoint*"):
        checkpoint.unlink()
    assert diagnose(tmp_path / "run").models[-1].round == run.selection.round


def test_weights_are_compared_with_those_of_the_runs_preferences(setting_file, tmp_path):
    """The first round has equal weights; the later ones are 1 : 9 times those of the slacks."""
    wishes = fedhv.FedHV(preferences=(1.0, 9.0), weight_cap=0.95, aggregate="median")
    fedhv.run(str(setting_file), wishes, rounds=ROUNDS, out=tmp_path / "run", reference=REFERENCE)
    found = diagnose(tmp_path / "run")
    newest = found.models[-1]
    exact = np.array([1.0, 9.0]) / np.array(newest.slack)
    weights = read_checkpoint(tmp_path / "run" / "checkpoint.safetensors", found.run.start).state.weights.numpy()
    assert newest.staleness == pytest.approx(np.abs(weights - exact / exact.sum()).sum(), abs=1e-5)
    assert newest.staleness < 0.1
    for said in ("follows preferences (1, 9)", "bounds its weights (weight_cap = 0.95)", "has their median one"):
        assert any(said in note for note in found.notes)


def test_a_run_that_ended_early_is_replayed_with_its_schedule(setting_file, tmp_path):
    """A cosine depends on the planned rounds."""
    cosine = ["training.schedule.kind=cosine"]
    slow = fedhv.FedHV(local_lr=0.01)
    run = fedhv.run(
        str(setting_file), slow, rounds=12, out=tmp_path / "run", reference=REFERENCE, override=cosine,
        observer=Watch(4, error=EarlyStop),
    )  # fmt: skip
    assert run.summary.rounds == 4
    found = diagnose(tmp_path / "run", replayed=True)
    assert "The replay gave the reports and weights of all 4 rounds exactly." in found.notes
    assert "The run ended after 4 of 12 rounds." in found.notes


# --- what cannot be diagnosed ---------------------------------------------------------------------------------


def spoil(folder, how):
    if how == "no config":
        (folder / "config.toml").unlink()
    elif how == "other config":
        (folder / "config.toml").write_text("[run]\nmethod = 'fedhv'\n")
    elif how == "no history":
        (folder / "history.jsonl").unlink()
    elif how == "gap":
        kept = lines(folder)
        (folder / "history.jsonl").write_text("".join([*kept[:2], *kept[3:]]))
    elif how == "no reference":
        (folder / "reference.toml").unlink()
    elif how == "no report":
        records = [json.loads(line) for line in lines(folder)]
        text = "".join(json.dumps({k: v for k, v in r.items() if k not in ("report", "slack")}) + "\n" for r in records)
        (folder / "history.jsonl").write_text(text)
    elif how == "own problem":
        path = folder / "config.toml"
        path.write_text(path.read_text().replace("problems:benchmark", "given"))


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("no config", "has no run: config.toml is missing"),
        ("other config", "should have `run.method` and `run.seed`"),
        ("no history", "has no finished round: history.jsonl is missing or empty"),
        ("gap", "expected round 3, found round 4"),
        ("no reference", "reference.toml is missing"),
        ("no report", "has no report in round 1"),
        ("own problem", "diagnose\\(folder, problem=…\\)"),
    ],
)
def test_what_is_missing_is_named(folder, how, named, command):
    spoil(folder, how)
    with pytest.raises(InputError, match=named):
        diagnose(folder)
    done = command("diagnose", folder)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert not (folder / "diagnosis").exists()


def test_ones_own_problem_is_measured_as_the_run_had_it(tmp_path):
    """In its units, without what clients hold out, from its initial model: reports of all are the start's losses."""
    own = everything_random()
    start = own.model()
    changes = {"scale": "initial", "validation": 0.3, "participants": 5, "local_steps": 1}
    run = fedhv.run(own, rounds=1, init=start, reference=REFERENCE, out=tmp_path / "run", quiet=True, **changes)
    found = diagnose(tmp_path / "run", problem=own, init=start)
    assert found.models[0].losses == pytest.approx(run.rounds[0].report, rel=1e-6)
    with pytest.raises(InputError, match=r"has another problem\. Changed since: the model.* init=…"):
        diagnose(tmp_path / "run", problem=own)


def test_a_uniform_run_has_no_reports(tmp_path, setting_file):
    fedhv.run(str(setting_file), "uniform", rounds=1, out=tmp_path / "u")
    with pytest.raises(InputError, match=r"\(uniform\) has no report in round 1 .* Only FedHV's rounds"):
        diagnose(tmp_path / "u")


def test_a_baseline_is_no_run_of_fedhv(setting_file, tmp_path):
    fedhv.compare(str(setting_file), ["uniform"], [0], rounds=2, baselines=["pooled"], out=tmp_path, jobs=1)
    with pytest.raises(InputError, match=r"\(pooled\) has no report in round 1 .* Only FedHV's rounds"):
        diagnose(tmp_path / "pooled-seed0")


def test_wrong_choices_are_named(original, command):
    with pytest.raises(InputError, match=r"Unknown checkpoint 'newset'\. Did you mean 'newest'"):
        diagnose(original, checkpoints=["newset"])
    with pytest.raises(InputError, match="without a replay"):
        diagnose(original, every=2)
    assert "--every needs --replay" in command("diagnose", original, "--every", 2).err
    assert "has no run" in command("diagnose", "nowhere").err


def test_a_history_of_another_run_is_not_replayed(folder):
    records = [json.loads(line) for line in lines(folder)]
    records[2]["report"][0] *= 1.1
    (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(FedHVError, match=r"differs from the history .* in round 3"):
        diagnose(folder, replayed=True)


# --- the command ----------------------------------------------------------------------------------------------


def test_the_command_prints_tables_and_writes_files(folder, command):
    done = command("diagnose", folder, "--replay", "--every", 3)
    assert done.code == 0, done.err
    for text in (
        "true slack of größe",
        "Pareto residual",
        "B_rep = all",
        "rounds exactly",
        "Tables and figures are in",
    ):
        assert text in done.out
    out = folder / "diagnosis"
    names = {path.name for path in out.iterdir()}
    assert names == {"rounds.csv", "models.csv", "alternatives.csv", "diagnosis.json"} | {
        f"{figure}.{ending}" for figure in ("margins", "theory") for ending in ("png", "pdf")
    }
    with (out / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = json.loads((out / "diagnosis.json").read_text())
    assert [int(row["round"]) for row in rows] == [m["round"] for m in found["models"]] == [0, 3, 6]
    assert float(rows[1]["gradient_norm"]) == found["models"][1]["gradient_norm"]
    assert float(rows[1]["slack: größe"]) == found["models"][1]["slack"][1]


def test_json_and_quiet(folder, command, tmp_path):
    done = command("diagnose", folder, "--json", "--no-figures", "--out", "elsewhere")
    assert done.code == 0
    assert done.err == ""
    assert json.loads(done.out)["tasks"] == ["colour", "größe"]
    assert {p.suffix for p in (tmp_path / "elsewhere").iterdir()} == {".csv", ".json"}
    quiet = command("diagnose", folder, "--quiet", "--no-figures")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_a_diagnosed_run_can_still_be_read_and_resumed(folder, command):
    before = (folder / "summary.json").read_bytes()
    assert command("diagnose", folder, "--no-figures").code == 0
    assert fedhv.runs.record.read_finished(folder).summary.rounds == ROUNDS
    assert (folder / "summary.json").read_bytes() == before
