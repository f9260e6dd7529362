"""TensorBoard shows what the histories say, under their names."""

from __future__ import annotations

import builtins
import json

import pytest

from fedhv.errors import InputError
from fedhv.study import StudyObserver
from fedhv.tensorboard import TensorBoard, scalars
from report.studies import DIGITS, made_up, write_history, write_run


def logged(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_names_are_those_of_the_history():
    record = made_up("fedhv", 0, DIGITS, 4, 4, 4, 10, 6)[-1]
    named = dict(scalars(record, DIGITS))
    assert named["weights/clear"] == record["weights"][0]
    assert named["slack/faint"] == record["slack"][1]
    assert named["evaluation/worst_accuracy"] == record["evaluation"]["worst_accuracy"]
    assert named["evaluation/tasks/faint/loss"] == record["evaluation"]["tasks"][1]["loss"]
    assert {"floored", "downlink_bytes", "uplink_bytes", "exchanges", "seconds"} <= set(named)
    assert "round" not in named


def test_as_many_refusals_as_tasks_are_not_taken_for_numbers():
    refused = [{"client": 3, "reason": "no answer"}, {"client": 5, "reason": "no answer"}]
    assert list(scalars({"round": 1, "refused": refused, "seconds": 2.0}, DIGITS)) == [("seconds", 2.0)]


def test_every_round_of_every_run_is_logged_once_as_it_comes(tmp_path):
    pytest.importorskip("tensorboard")
    records = made_up("fedhv", 0, DIGITS, 12, 12, 4, 10, 6)
    run = write_run(tmp_path / "fedhv-seed0", rounds=12, done=2)
    board = TensorBoard(tmp_path, StudyObserver())
    board.stop()  # two rounds, none evaluated: they wait for the names of the tasks
    write_history(run, records[:5])
    board.runs([])
    board.stop()
    path = run / "history.jsonl"
    with path.open("a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records[5:]) + '{"round": 13, "we')
    board.stop()
    shown = logged(tmp_path / "tensorboard" / "fedhv-seed0")
    assert [step for step, _ in shown["weights/clear"]] == list(range(1, 13))
    assert [step for step, _ in shown["evaluation/mean_accuracy"]] == [4, 8, 12]
    assert shown["slack/faint"][-1][1] == pytest.approx(records[-1]["slack"][1])


def test_a_history_that_starts_again_is_logged_again(tmp_path):
    pytest.importorskip("tensorboard")
    records = made_up("fedhv", 0, DIGITS, 8, 8, 2, 10, 6)
    run = write_run(tmp_path / "r", rounds=8)
    board = TensorBoard(run, StudyObserver())
    board.stop()
    write_history(run, records[:4])
    board.stop()
    shown = logged(run / "tensorboard" / "r")
    assert [step for step, _ in shown["seconds"]] == [1, 2, 3, 4]


def test_runs_log_when_asked_to(command, setting_file, tmp_path):
    pytest.importorskip("tensorboard")
    outcome = command("run", setting_file, "--method", "uniform", "--rounds", 2, "--out", "r", "--tensorboard")
    assert outcome.code == 0
    assert "tensorboard --logdir r/tensorboard" in outcome.err
    history = [json.loads(line) for line in (tmp_path / "r" / "history.jsonl").read_text().splitlines()]
    shown = logged(tmp_path / "r" / "tensorboard" / "r")
    assert [value for _, value in shown["uplink_bytes"]] == [record["uplink_bytes"] for record in history]


def test_a_missing_tensorboard_is_said_in_one_line(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest):
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'fedhv\[tensorboard\]'"):
        TensorBoard(tmp_path, StudyObserver())
