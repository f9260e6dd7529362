"""Runs with missing labels: settings, calibration, what the folder keeps, resuming, diagnosis and report."""

import json
import math

import pytest
import torch
from gaps import gappy

import fedhv
from fedhv import FedHV, InputError, Uniform, load_setting
from fedhv.engines import Sequential
from fedhv.problem.hiding import shown
from fedhv.problem.labels import holding
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import sample_cohort
from fedhv.report import read_study, tables
from fedhv.report.payload import payload
from fedhv.runs.calibration import find_reference
from fedhv.runs.config import override_setting
from fedhv.runs.resolve import resolve, setting_of
from fedhv.simulation.rounds import simulate
from fedhv.theory.diagnosis import Examiner, diagnose

CHANGES = ["federation.participants=1", "training.local_steps=2", "training.batch_size=4", "training.rounds=5"]


def rule(problem, *changes):
    return override_setting(setting_of(problem), [*CHANGES, *changes])


# --- settings -------------------------------------------------------------------------------------------------


def test_a_setting_hides_labels_of_its_benchmark(setting_file):
    whole = resolve(str(setting_file))[1]
    _, problem = resolve(str(setting_file), ["federation.missing=0.4"])
    assert whole.train.labelled is None
    assert all(0.5 < share < 0.7 for share in shown(problem))
    kept = problem.train.labelled[0]
    assert torch.equal(problem.train.targets[0][kept], whole.train.targets[0][kept])
    assert (problem.clients.indices == whole.clients.indices).all()
    _, by_task = resolve(str(setting_file), ["federation.missing=0.4", "federation.missing_by=task"])
    counts = [n for k in range(6) for n in holding(by_task, k).labels]
    assert counts.count(0) >= 1  # clients share some examples, which lose the labels that one of them lacks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("federation.missing=1.0", r"`federation.missing` should be in \[0, 1\)\. Found 1.0\.$"),
        ("federation.missing_by=row", r"`federation.missing_by` should be 'label' or 'task'\. Found 'row'\.$"),
        ("federation.average=size", r"`federation.average` should be 'clients'.* 'labels'\. Found 'size'\.$"),
        ("federation.select=big", r"`federation.select` should be 'uniform' or 'size'\. Found 'big'\.$"),
    ],
)
def test_what_a_setting_cannot_mean_is_refused(setting_file, change, said):
    with pytest.raises(InputError, match=said) as caught:
        load_setting(str(setting_file), [change])
    assert "\n" not in str(caught.value)


def test_show_prints_the_share_of_labels_where_some_are_missing(command, setting_file):
    assert "# Labels" not in command("show", "digits").out
    assert "# Labels" not in command("show", setting_file).out
    hidden = command("show", setting_file, "--set", "federation.missing=0.4")
    (line,) = [line for line in hidden.out.splitlines() if line.startswith("# Available labels: ")]
    shares = shown(resolve(str(setting_file), ["federation.missing=0.4"])[1])
    assert line.endswith(f"colour {100 * shares[0]:.1f} %, größe {100 * shares[1]:.1f} %")
    absent = command("show", "multimnist", "--set", "federation.missing=0.4", "--data", "nowhere")
    assert absent.code == 0
    assert "# Available labels: unknown, because the examples cannot be read." in absent.out


# --- calibration ----------------------------------------------------------------------------------------------


def test_a_calibration_takes_the_rounds_that_have_a_task():
    problem = gappy()
    setting = rule(problem, "calibration.rounds=12", "calibration.margin=0.25")
    reference = find_reference(setting, FedHV(), problem)
    brief = override_setting(setting, ["training.rounds=12", "evaluation.every=0"])
    history = fedhv.run(problem, Uniform(report="all"), override=[*CHANGES, "training.rounds=12"]).history
    assert brief.training.rounds == len(history)
    assert any("absent" in record for record in history)
    for i, value in enumerate(reference.values):
        there = [record["report"][i] for record in history if i not in record.get("absent", [])]
        assert value == pytest.approx(max(there) + 0.25)
        assert math.isfinite(value)


def test_a_task_that_is_absent_from_the_whole_calibration_is_refused_in_one_line():
    problem = gappy()
    with pytest.raises(InputError) as caught:
        find_reference(rule(problem, "calibration.rounds=1"), FedHV(), problem)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("The calibration should see labels of every task. Found no client with labels of task")
    assert said.endswith("raise `calibration.rounds` or `federation.participants`, or give a reference.")


# --- folders --------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_remembers_the_last_report():
    problem, method = gappy(), FedHV(reference=(9.0, 9.0, 9.0))
    plan = rule(problem).plan(method, 2)
    rounds = list(simulate(Sequential(problem), method, plan))
    assert any("absent" in each.state.record for each in rounds[1:])
    for start in range(1, 5):
        again = list(simulate(Sequential(problem), method, plan, rounds[start - 1].state, start))
        assert [each.state.record for each in again] == [each.state.record for each in rounds[start:]]
        assert torch.equal(again[-1].state.model, rounds[-1].state.model)


def test_a_folder_whose_labels_differ_is_another_run(tmp_path, setting_file):
    def once(*changes):
        return fedhv.run(str(setting_file), Uniform(), rounds=1, out=tmp_path / "run", resume=True, override=changes)

    once("federation.missing=0.4")
    once("federation.missing=0.4")
    with pytest.raises(InputError):
        once("federation.missing=0.4", "federation.missing_by=task")


def test_folder_diagnosis_and_report_know_of_missing_labels(tmp_path):
    problem = gappy()
    folder = tmp_path / "study" / "run"
    result = fedhv.run(problem, FedHV(reference=(9.0, 9.0, 9.0)), override=CHANGES, out=folder)
    client = Client(problem)
    held = [client.holding(k) for k in range(5)]
    counts = [sum(each.labels[i] for each in held) for i in range(3)]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["labels"] == counts
    assert summary["client_labels"] == [[each.examples, *each.labels] for each in held]
    assert result.summary.client_labels == tuple(map(tuple, summary["client_labels"]))
    labels = payload(read_study([tmp_path / "study"]))["settings"][0]["labels"]
    assert labels["clients"] == [list(each.labels) for each in held]
    assert labels["sizes"] == [each.examples for each in held]
    gone = [sum(i in record.get("absent", []) for record in result.history) for i in range(3)]
    assert summary["absent_rounds"] == {str(i): n for i, n in enumerate(gone) if n}

    (table,) = [each for each in tables(read_study([tmp_path / "study"])) if each.name == "labels"]
    assert [(row[2].text, row[3].text, row[4].text) for row in table.rows] == [
        (task.name, str(n), f"{absent}/5") for task, n, absent in zip(problem.tasks, counts, gone, strict=True)
    ]

    found = diagnose(folder, problem=problem)
    assert any(note.startswith("Labels are missing: of 81 examples") for note in found.notes)
    assert any(note.startswith("Tasks without labels in the cohort") for note in found.notes)
    assert all(math.isfinite(x) for model in found.models for x in (*model.losses, *model.loss_spread))
    assert all(model.report_error is None or math.isfinite(model.report_error) for model in found.models)


def test_complete_runs_say_nothing_of_labels(tmp_path, setting_file):
    fedhv.run(str(setting_file), Uniform(), rounds=2, out=tmp_path / "study" / "run")
    summary = json.loads((tmp_path / "study" / "run" / "summary.json").read_text())
    assert not {"labels", "client_labels", "absent_rounds"} & set(summary)
    assert not [each for each in tables(read_study([tmp_path / "study"])) if each.name == "labels"]


def test_measured_losses_and_gradients_are_means_over_the_clients_that_have_a_task():
    problem = gappy()
    client = Client(problem)
    look, theta = Examiner(client), torch.linspace(-1, 1, client.layout.d)
    each = []
    for k in range(5):
        positions = torch.arange(len(problem.clients[k])).numpy()
        losses, counts = client.losses(theta, positions, k), client.holding(k).labels
        each.append([float(x) * len(positions) / n if n else math.nan for x, n in zip(losses, counts, strict=True)])
    table = torch.tensor(each, dtype=torch.float64)
    found = look.population(theta)
    torch.testing.assert_close(torch.from_numpy(found.losses), table.nanmean(dim=0), rtol=1e-5, atol=1e-6)
    assert torch.isfinite(torch.from_numpy(found.report_noise(1, 4))).all()
    gradients = look.task_gradients(theta)
    direction = torch.randn(client.layout.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction /= direction.norm()
    high, low = (look.population((theta + sign * 1e-2 * direction).float()).losses for sign in (1, -1))
    slope = torch.from_numpy((high - low) / 2e-2)
    torch.testing.assert_close(gradients @ direction, slope, rtol=2e-2, atol=2e-3)


# --- cohorts by size ------------------------------------------------------------------------------------------


def test_cohorts_by_size_are_those_of_the_sizes():
    problem = gappy(complete=True)
    seen = []

    class Watching(Uniform):
        def round(self, state):
            conversation = super().round(state)
            replies = yield next(conversation)
            seen.append(list(replies.cohort.clients))
            try:
                conversation.send(replies)
            except StopIteration as end:
                return end.value

    changes = [*CHANGES, "federation.participants=2", "federation.select=size"]
    fedhv.run(problem, Watching(), override=changes, seed=4)
    local = rule(problem).training.local(0.1)
    expected = [sample_cohort(4, t, 5, 2, local, sizes=problem.clients.sizes).clients for t in range(5)]
    assert seen == expected
    assert seen != [sample_cohort(4, t, 5, 2, local).clients for t in range(5)]
