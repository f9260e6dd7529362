"""The study of rules: what its parts hold, and its statistics, by hand."""

import importlib
import json
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedhv
from fedhv import load_setting

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def module():
    """Imports a file of the study by its name."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def script(module):
    return module("rules_parts")


def test_holms_correction_by_hand(module):
    holm = module("rules_tables").holm
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_students_p_by_hand(module):
    p_value = module("rules_tables").p_value
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(0.0741799, abs=1e-6)  # t = 2√3 with 2 degrees of freedom
    assert p_value([1.0, 1.0]) == 0.0


def test_every_part_without_results_of_another_can_be_made(script, tmp_path):
    setting = load_setting("digits")
    counts = {}
    for part in ("rules", "fixed", "knobs", "partitions"):
        counts[part] = sum(len(each.variants) for each in script.parts(part, setting, tmp_path, [0], 2))
    assert counts == {"rules": 13, "fixed": 9, "knobs": 8 * 7, "partitions": 4 * 6}
    assert script.parts("average", setting, tmp_path, [0], 2) == []
    assert script.parts("averages", setting, tmp_path, [0], 2) == []
    assert script.parts("margins", setting, tmp_path, [0], 2) == []


def test_constant_weights_are_the_time_average_of_fedhvs(script, setting_file, tmp_path):
    fedhv.run(str(setting_file), "fedhv", rounds=3, out=tmp_path / "fedhv-seed0", reference=[2.0, 9.0], quiet=True)
    weights = script.average_weights(tmp_path, "fedhv", [0])
    rounds = fedhv.read_run(tmp_path / "fedhv-seed0").rounds
    assert weights == pytest.approx([sum(each.weights[i] for each in rounds) / 3 for i in range(2)], abs=1e-6)


def test_fresh_weights_are_those_of_the_rounds_own_reports(script, setting_file):
    method = script.FreshFedHV(reference=(4.0, 9.0), server_lr=1.0, local_lr=0.1)
    found = fedhv.run(str(setting_file), method, rounds=2, quiet=True)
    for each in found.rounds:
        slacks = [4.0 - each.report[0], 9.0 - each.report[1]]
        assert each.weights[0] == pytest.approx(slacks[1] / sum(slacks), rel=1e-5)
        assert each.exchanges == 2


def test_a_rule_as_long_as_a_sum_has_the_servers_rate_divided_by_the_tasks(script, tmp_path):
    pytest.importorskip("torchjd")
    setting = load_setting("digits")
    (part,) = script.parts("gradients", setting, tmp_path, [0], 2)
    rates = {each.method.label: each.method.server_lr for each in part.variants}
    assert rates["torchjd:PCGrad"] == pytest.approx(rates["torchjd:MGDA"] / 2)
    assert rates["torchjd:MGDA"] == setting.method("fsmgda").server_lr


def test_the_plan_names_known_settings_and_parts_and_tunes_before_it_runs_what_was_tuned(module):
    study, known = module("rules_study"), module("rules_parts").PARTS
    for step in study.STEPS:
        load_setting(step.setting, study.BRIEF)
        assert step.part in known
    order = [(step.setting, step.part) for step in study.STEPS]
    assert order.index(("multimnist", "tune")) < order.index(("multimnist", "tuned"))


def test_a_step_is_left_out_when_its_estimate_is_longer_than_the_budget(module, tmp_path):
    study, setting = module("rules_study"), load_setting("multimnist")
    clock = study.Clock(budget=1000.0)
    assert clock.estimate(setting, 10, 200, "rules", tmp_path, "cuda") == pytest.approx(6 + 10 * 200 * 0.006)
    clock.note(setting, work=10 * 200, seconds=400.0)  # what this call has measured counts from then on
    assert clock.estimate(setting, 10, 200, "fresh", tmp_path, "cuda") == pytest.approx(6 + 2 * 400)
    assert clock.left < 1000.0


@pytest.fixture(scope="module")
def small_study(module, tmp_path_factory):
    """Two rules with two seeds and a tuning, two rounds each, as the command makes them; and its archive."""
    study, place = module("rules_study"), tmp_path_factory.mktemp("rules")
    command = ["rules_study.py", "run", "digits", "--seeds", "0,1", "--out", str(place / "study"), "--quiet"]
    command += ["--device", "cpu", "--engine", "sequential", "--jobs", "1", "--archive", str(place / "study.tar.xz")]
    federation = ("federation.participants=2", "federation.samples_per_client=40")
    for change in ("training.rounds=2", "training.local_steps=1", *federation, "calibration.rounds=2"):
        command += ["--set", change]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "TRIALS", 2)
        parts = ["--parts", "rules,tune,average,averages,margins"]
        patch.setattr(sys, "argv", [*command, "--rules", "fixed,fedhv,stch", *parts])
        study.main()
    return place


def test_the_study_is_resumed_archived_and_shown(module, small_study, capsys):
    study, out = module("rules_study"), small_study / "study"
    with tarfile.open(small_study / "study.tar.xz") as bundle:
        names = bundle.getnames()
    assert "study/digits/rules/fedhv-seed1/history.jsonl" in names
    assert "study/digits/tune/tune.json" in names
    assert not [name for name in names if name.endswith(".safetensors") or "/tune/fedhv-" in name]
    module("rules_tables").write_tables(out, small_study / "tables")
    text = (small_study / "tables" / "digits.md").read_text()
    assert "### rules, against equal weights at FedHV's rates (fixed)" in text
    assert "| margin-3.0 |" in text
    assert "### Values found by tuning" in text
    assert re.search(r"\| stch \| [+−-].*\| 0\.\d\d, 0\.\d\d \| 2 \|", text)
    before = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("summary.json"))
    capsys.readouterr()
    arguments = ["rules_study.py", "run", "digits", "--seeds", "0,1", "--out", str(out), "--dry-run", "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*arguments, "--rules", "fixed,fedhv", "--parts", "rules,tune"])
        study.main()
    assert capsys.readouterr().out.count(": 0 runs to do") == 2
    assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("summary.json")) == before


def test_a_table_shows_what_was_chosen_and_what_the_setting_had(module, tmp_path):
    def trial(rates, mu, score, rounds=30, chosen=False):
        values = {"local_lr": rates[0], "server_lr": rates[1], "mu": mu}
        return {"method": "stch", "values": values, "rounds": rounds, "score": score, "chosen": chosen}

    trials = [
        trial((0.3, 1.2), 0.1, 80.0),
        trial((0.1, 2.0), 0.05, 82.5, chosen=True),
        trial((0.9, 2.0), 0.5, None, rounds=10),
    ]
    path = tmp_path / "tune.json"
    path.write_text(json.dumps({"how": "Chosen.", "by": "mean_accuracy", "trials": trials}))
    assert "| stch | 0.1 | 2 | mu 0.05 | 82.50 | 80.00 | 1 of 3 |" in module("rules_tables").tuning_table(path)
    trials[0] = trial((0.3, 1.2), 0.1, 61.0, rounds=10)  # given up after the first rung
    path.write_text(json.dumps({"how": "Chosen.", "by": "mean_accuracy", "trials": trials}))
    assert "| 82.50 | 61.00 (after 10 rounds) | 1 of 3 |" in module("rules_tables").tuning_table(path)


def test_weights_along_recorded_reports_by_hand(module):
    along = module("rules_along")
    losses = np.array([[1.0, 1.0], [1.0, 2.0]])
    weights = along.weights_along(losses, [3.0, 3.0])
    np.testing.assert_allclose(weights, [[1 / 2, 1 / 2], [1 / 3, 2 / 3]])  # slacks 2, 2 and 2, 1
    np.testing.assert_allclose(along.distance(weights, np.array([0.5, 0.5])), [0.0, 1 / 6])


def test_runs_with_equal_weights_contain_the_calibration_of_their_seed(module, small_study):
    folder = small_study / "study" / "digits" / "rules"
    own = module("rules_parts").reference_of(folder)
    found = module("rules_along").calibrated(folder, 0, own.provenance.rounds, own.provenance.margin)
    assert found == pytest.approx(own.values)
    assert "| calibration seed 1 |" in module("rules_along").table("digits", folder)


def test_a_rule_that_adds_up_has_a_smaller_rate_unless_it_was_tuned(module):
    pytest.importorskip("torchjd")
    made, setting = module("rules_parts")._made, load_setting("digits")
    (usual,) = made(["torchjd:PCGrad"], setting, 2)
    assert usual.server_lr == setting.method("torchjd:PCGrad").server_lr / 2
    own = replace(setting, methods=dict(setting.methods) | {"torchjd:PCGrad": {"server_lr": 0.7, "local_lr": 0.1}})
    (tuned,) = made(["torchjd:PCGrad"], own, 2)
    assert (tuned.server_lr, tuned.local_lr) == (0.7, 0.1)
