"""`[preferences]` in a setting: by task name, for methods that take them."""

from __future__ import annotations

import pytest

from fedhv import FedHV, InputError, calibrate, compare, load_setting, run
from fedhv.methods import make_method
from fedhv.methods.preferences import with_preferences

CHANGES = ["training.local_steps=1", "calibration.rounds=1"]
PREFERENCES = ["preferences.faint=1.0", "preferences.clear=3"]
OPTIONS = {"rounds": 2, "engine": "sequential"}


def play(method, *changes, **more):
    return run("digits", method, override=[*CHANGES, *changes], **OPTIONS, **more)


def test_preferences_reach_the_method_in_the_order_of_the_tasks(tmp_path):
    result = play("fixed", *PREFERENCES, out=tmp_path / "r")
    assert result.weights == pytest.approx([0.75, 0.25])
    assert [record["weights"] for record in result.history] == [[0.75, 0.25]] * 2
    text = (tmp_path / "r" / "config.toml").read_text()
    assert "preferences = [3.0, 1.0]" in text
    assert play("fixed", *PREFERENCES, out=tmp_path / "r", resume=True).weights == pytest.approx([0.75, 0.25])


def test_fedhv_takes_them_after_a_calibration_without():
    plain, preferring = play("fedhv"), play("fedhv", *PREFERENCES)
    assert preferring.reference.values == plain.reference.values  # calibrated with uniform weights
    first = preferring.history[0]["slack"]
    assert preferring.history[1]["weights"][0] == pytest.approx(3 / first[0] / (3 / first[0] + 1 / first[1]))


def test_a_setting_with_preferences_can_be_calibrated():
    assert len(calibrate(load_setting("digits", [*CHANGES, *PREFERENCES])).values) == 2


def test_preferences_of_the_method_itself_come_first():
    result = play(FedHV(preferences=(1.0, 1.0)), *PREFERENCES, reference=[3.0, 3.0])
    assert result.history[1]["weights"][0] < 0.6


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("fsmgda", PREFERENCES, "Method 'fsmgda' takes no preferences"),
        ("fixed", ["preferences.clear=1"], r"\[preferences\] should name every task\. Found none for faint"),
        ("fixed", [*PREFERENCES, "preferences.faintt=1"], "Did you mean 'faint'"),
        ("fixed", ["preferences.clear=-1", "preferences.faint=1"], "not negative"),
        ("fixed", ["preferences.clear=much"], "should be a number"),
        ("fixed", ["methods.fixed.preferences=[1, 2, 3]"], r"one number per task \(2\)"),
    ],
)
def test_mistakes_are_named_in_one_line_before_anything_is_written(method, changes, said, tmp_path):
    with pytest.raises(InputError, match=said) as caught:
        play(method, *changes, out=tmp_path / "r")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_baselines_beside_preferences_have_equal_weights(tmp_path):
    short = {"rounds": 1, "participants": 2, "override": [*CHANGES, *PREFERENCES], "jobs": 1, "quiet": True}
    found = compare("digits", ["fixed"], [0], baselines=["pooled"], out=tmp_path, **short)
    assert [run.weights for run in found] == [pytest.approx((0.75, 0.25)), (0.5, 0.5)]


def test_preferences_by_hand():
    method = with_preferences(make_method("geometric"), {"b": 2.0, "a": 1.0}, ["a", "b"])
    assert method.preferences == (1.0, 2.0)
