"""Benchmarks that bring their clients: Tox21 by scaffold, STAR by school; from made-up tables in their layouts."""

import importlib.util

import numpy as np
import pytest
import torch
from tiny_tables import CHAINS, scores, write_star, write_tox21

import fedhv
from fedhv import InputError, Problem
from fedhv.benchmarks import load_benchmark, star, tox21
from fedhv.benchmarks.natural import split
from fedhv.data.catalogue import STAR_TESTS, TOX21_ASSAYS
from fedhv.runs.config import load_setting
from fedhv.runs.resolve import resolve

chemistry = pytest.mark.skipif(importlib.util.find_spec("rdkit") is None, reason="needs rdkit")

# --- parts ------------------------------------------------------------------------------------------------------


def test_every_client_gives_its_share_and_nothing_is_lost():
    clients = [np.arange(50), np.arange(50, 60), np.arange(60, 63)]
    parts = split(clients)
    assert [len(each) for each in parts.train] == [35, 7, 3]
    assert (len(parts.validation), len(parts.test)) == (6, 12)
    everything = np.concatenate([*parts.train, parts.validation, parts.test])
    assert sorted(everything.tolist()) == list(range(63))
    for mine, kept in zip(clients, parts.train, strict=True):
        assert set(kept.tolist()) <= set(mine.tolist())


def test_a_clients_parts_do_not_depend_on_what_others_hold():
    one, other = split([np.arange(50), np.arange(50, 60)]), split([np.arange(50), np.arange(50, 90)])
    assert one.train[0].tolist() == other.train[0].tolist()


# --- STAR -------------------------------------------------------------------------------------------------------


def test_star_has_a_client_for_every_school_and_a_task_for_every_test(tmp_path):
    write_star(tmp_path)
    problem = load_benchmark("star", str(tmp_path))
    assert isinstance(problem, Problem)
    assert [task.name for task in problem.tasks] == list(STAR_TESTS)
    assert len(problem.clients) == 3
    assert problem.train.inputs.shape[1] == star.INPUTS
    assert [out.shape for out in problem.model()(problem.train.inputs[:5])] == [(5, 1)] * 8
    assert [metric.name for metric in problem.tasks[0].metrics] == ["rmse", "r2"]


def test_missing_scores_are_masked_and_known_ones_are_in_deviations(tmp_path):
    rows = write_star(tmp_path, schools=1)
    problem = load_benchmark("star", str(tmp_path))
    wanted = np.array([scores(rows[i]) for i in split([np.arange(30)]).train[0]])
    for i, test in enumerate(STAR_TESTS):
        mask, (centre, scale) = ~np.isnan(wanted[:, i]), star.SCALES[test]
        there = problem.train.labelled[i]
        assert (mask if there is None else there.numpy()).tolist() == mask.tolist()
        assert (there is None) == mask.all()
        targets = problem.train.targets[i].numpy()[mask]
        np.testing.assert_allclose(targets, (wanted[mask, i] - centre) / scale, rtol=1e-5)


def test_no_score_and_no_school_reaches_the_inputs(tmp_path):
    write_star(tmp_path)
    before = load_benchmark("star", str(tmp_path)).train.inputs

    def other(rows):
        for row in rows:
            for name in row:
                if name in STAR_TESTS and row[name]:
                    row[name] = "500"
                if name.startswith("schoolid") and row[name]:
                    row[name] = str(int(row[name]) + 40)

    write_star(tmp_path, change=other)
    assert torch.equal(load_benchmark("star", str(tmp_path)).train.inputs, before)


def test_a_pupil_belongs_to_the_first_school_that_is_known():
    nan = float("nan")
    schools = np.array([[1.0, nan, nan], [2.0, 5.0, nan], [2.0, 6.0, nan], [3.0, 6.0, nan]])
    first = star.first_school(schools)
    assert first[:2].tolist() == [1.0, 5.0]
    assert np.isnan(first[2])


def test_pupils_without_any_score_are_left_out(tmp_path):
    def untested(rows):
        for row in rows[:10]:
            row |= dict.fromkeys(STAR_TESTS, "")

    write_star(tmp_path, schools=1, change=untested)
    problem = load_benchmark("star", str(tmp_path))
    kept = split([np.arange(20)])
    assert (len(problem.train), len(problem.test)) == (len(kept.train[0]), len(kept.test))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("birth", "1980", "column 'birth' should hold quarters such as '1979 Q3'. Found '1980'"),
        ("lunchk", "paid", "column 'lunchk' should hold free, non-free or nothing. Found 'paid'"),
        ("read1", "good", "Column 'read1', line 2: expected a number, found 'good'"),
    ],
)
def test_strange_entries_are_one_line(tmp_path, name, value, says):
    write_star(tmp_path, change=lambda rows: rows[0].update({name: value}))
    with pytest.raises(InputError, match=says):
        load_benchmark("star", str(tmp_path))


def test_the_rmse_of_star_is_in_points():
    found = star.points(32.0, torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, 1.0]))
    assert found == pytest.approx(32.0)


# --- Tox21 ------------------------------------------------------------------------------------------------------


@chemistry
def test_tox21_has_a_client_for_every_common_scaffold(tmp_path):
    write_tox21(tmp_path)
    problem = load_benchmark("tox21", str(tmp_path))
    assert isinstance(problem, Problem)
    assert [task.name for task in problem.tasks] == list(TOX21_ASSAYS)
    held = 25 - int(0.1 * 25) - int(0.2 * 25)
    assert problem.clients.sizes.tolist() == [held] * 3
    assert problem.train.inputs.dtype == torch.uint8
    assert [out.shape for out in problem.model()(problem.prepare(problem.train.inputs[:5]))] == [(5, 2)] * 12
    shares = [float(mask.float().mean()) for mask in problem.train.labelled]
    assert 0.5 < min(shares) <= max(shares) < 0.85
    # molecules without a ring have none of a ring's bits: clients differ
    means = [problem.train.inputs[mine].float().mean(dim=0) for mine in problem.clients]
    assert not torch.equal(means[0], means[1])


@chemistry
def test_molecules_that_appear_twice_count_once_and_unreadable_ones_not_at_all(tmp_path):
    write_tox21(tmp_path)
    before = load_benchmark("tox21", str(tmp_path))
    nothing = [""] * len(TOX21_ASSAYS)
    write_tox21(tmp_path, extra=[[*nothing, "TOX900", CHAINS[0]], [*nothing, "TOX901", "c1ccccc"]])
    after = load_benchmark("tox21", str(tmp_path))
    assert torch.equal(after.train.inputs, before.train.inputs)
    assert all(map(torch.equal, after.train.labelled, before.train.labelled))


def test_rare_scaffolds_share_clients_and_none_is_torn_apart(monkeypatch):
    monkeypatch.setattr(tox21, "COMMON", 4)
    monkeypatch.setattr(tox21, "CLIENT", 3)
    scaffolds = [(0, "")] * 4 + [(2, "b"), (1, "a"), (2, "b"), (1, "a"), (3, "c"), (1, "d")]
    clients = [each.tolist() for each in tox21.by_scaffold(scaffolds)]
    assert clients == [[0, 1, 2, 3], [5, 7, 9], [4, 6, 8]]


@chemistry
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (["2"] + [""] * 11 + ["X", "CC"], "expected labels 0, 1 or none"),
        (["0", "CC"], "expected 14 fields, found 2"),
    ],
)
def test_damaged_tox21_is_one_line(tmp_path, row, says):
    write_tox21(tmp_path, extra=[row])
    with pytest.raises(InputError, match=says):
        load_benchmark("tox21", str(tmp_path))


def test_tox21_without_rdkit_says_what_to_install(tmp_path, monkeypatch):
    write_tox21(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    with pytest.raises(InputError, match=r"pip install 'fedhv\[chemistry\]'"):
        load_benchmark("tox21", str(tmp_path))


@pytest.mark.parametrize("name", ["tox21", "star"])
def test_missing_tables_are_one_line(tmp_path, name):
    with pytest.raises(InputError, match=rf"fedhv data download {name}"):
        load_benchmark(name, str(tmp_path))


# --- runs -------------------------------------------------------------------------------------------------------

SMALL = ["federation.participants=2", "training.rounds=2", "evaluation.every=0", "calibration.rounds=1"]


@pytest.mark.parametrize("method", ["uniform", "fsmgda", "fedcmoo", "fedhv"])
def test_every_method_runs_on_star(tmp_path, method):
    write_star(tmp_path)
    run = fedhv.run("star", method, override=SMALL, data=str(tmp_path), engine="sequential")
    assert list(run.summary.tasks[0].metrics) == ["rmse", "r2"]


@pytest.mark.parametrize("name", ["tox21", "star"])
def test_settings_leave_the_clients_to_the_benchmark(name):
    federation = load_setting(name).federation
    assert (federation.clients, federation.samples_per_client) == (None, None)


def test_validation_and_test_are_evaluated_with_the_same_training_examples(tmp_path):
    write_star(tmp_path)
    _, test = resolve("star", data=str(tmp_path))
    _, validation = resolve("star", ["benchmark=fedhv.benchmarks.star:load_validation"], data=str(tmp_path))
    assert torch.equal(test.train.inputs, validation.train.inputs)
    assert (len(validation.test), len(test.test)) == (9, 18)
