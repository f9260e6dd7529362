"""The study of rules: what its parts hold, and its statistics, by hand."""

import importlib.util
import sys
from pathlib import Path

import pytest

import fedhv
from fedhv import load_setting

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "rules_study.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("rules_study", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["rules_study"] = module
    spec.loader.exec_module(module)
    return module


def test_holms_correction_by_hand(script):
    assert script.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert script.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_students_p_by_hand(script):
    assert script.p_value([1.0, 2.0, 3.0]) == pytest.approx(0.0741799, abs=1e-6)  # t = 2√3 with 2 degrees of freedom
    assert script.p_value([1.0, 1.0]) == 0.0


def test_every_part_without_results_of_another_can_be_made(script, tmp_path):
    setting = load_setting("digits")
    counts = {}
    for part in ("rules", "fixed", "knobs", "partitions"):
        counts[part] = sum(len(each.variants) for each in script.parts(part, setting, tmp_path, [0], 2))
    assert counts == {"rules": 13, "fixed": 9, "knobs": 8 * 7, "partitions": 4 * 6}
    assert script.parts("average", setting, tmp_path, [0], 2) == []
    assert script.parts("margins", setting, tmp_path, [0], 2) == []


def test_constant_weights_are_the_time_average_of_fedhvs(script, setting_file, tmp_path):
    fedhv.run(str(setting_file), "fedhv", rounds=3, out=tmp_path / "fedhv-seed0", reference=[2.0, 9.0], quiet=True)
    weights = script.average_weights(tmp_path, [0])
    rounds = fedhv.read_run(tmp_path / "fedhv-seed0").rounds
    assert weights == pytest.approx([sum(each.weights[i] for each in rounds) / 3 for i in range(2)], abs=1e-6)


def test_fresh_weights_are_those_of_the_rounds_own_reports(script, setting_file):
    method = script.FreshFedHV(reference=(4.0, 9.0), server_lr=1.0, local_lr=0.1)
    found = fedhv.run(str(setting_file), method, rounds=2, quiet=True)
    for each in found.rounds:
        slacks = [4.0 - each.report[0], 9.0 - each.report[1]]
        assert each.weights[0] == pytest.approx(slacks[1] / sum(slacks), rel=1e-5)
        assert each.exchanges == 2
