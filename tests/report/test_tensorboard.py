"""TensorBoard shows what the histories say, under their names."""

from __future__ import annotations

import builtins
import errno
import json

import pytest
from problems import everything_random

from fedhv import Uniform, run
from fedhv.report.tensorboard import TensorBoard
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError
from report.studies import DIGITS, made_up, write_history, write_run


def logged(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_names_are_those_of_the_history():
    record = made_up("fedhv", 0, DIGITS, 4, 4, 4, 10, 6)[-1]
    named = dict(Round.read(record).scalars(DIGITS))
    assert named["weights/clear"] == record["weights"][0]
    assert named["slack/faint"] == record["slack"][1]
    assert named["evaluation/worst_accuracy"] == record["evaluation"]["worst_accuracy"]
    assert named["evaluation/tasks/faint/loss"] == record["evaluation"]["tasks"][1]["loss"]
    assert {"floored", "downlink_bytes", "uplink_bytes", "exchanges", "seconds"} <= set(named)
    assert "round" not in named


def test_as_many_refusals_as_tasks_are_not_taken_for_numbers():
    refused = [{"client": 3, "reason": "no answer"}, {"client": 5, "reason": "no answer"}]
    record = made_up("uniform", 0, DIGITS, 4, 1, 4, 10, 6)[0]
    plain = list(Round.read(record).scalars(DIGITS))
    assert list(Round.read(record | {"refused": refused}).scalars(DIGITS)) == plain


def test_every_round_of_every_run_is_logged_once_as_it_comes(tmp_path):
    pytest.importorskip("tensorboard")
    records = made_up("fedhv", 0, DIGITS, 12, 12, 4, 10, 6)
    run = write_run(tmp_path / "fedhv-seed0", rounds=12, done=2)
    board = TensorBoard(tmp_path, Observer())
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
    board = TensorBoard(run, Observer())
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
        TensorBoard(tmp_path, Observer())


class Listening(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.rounds = [], 0

    def message(self, text):
        self.said.append(text)

    def round(self, round):
        self.rounds += 1


def test_a_log_that_cannot_be_written_is_said_once_and_the_run_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("fedhv.report.tensorboard.SECONDS_BETWEEN_LOOKS", 0.0)
    heard, folder = Listening(), tmp_path / "run"

    class Blocking(TensorBoard):
        def round(self, round):
            (folder / "tensorboard").write_text("a file where the log should go")
            super().round(round)

    result = run(everything_random(), Uniform(), rounds=3, out=folder, override=["training.batch_size=8"],
                 observer=Blocking(folder, heard))  # fmt: skip
    assert (len(result.rounds), heard.rounds) == (3, 3)
    (said,) = [text for text in heard.said if "tensorboard" in text.lower()]
    assert said.startswith(f"{folder / 'tensorboard'} could not be written: ")
    assert "\n" not in said


def test_a_disk_that_is_full_at_the_end_is_said_and_nothing_is_raised(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    heard, played = Listening(), write_run(tmp_path / "r")
    board = TensorBoard(played, heard)

    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedhv.report.tensorboard._Follower.flush", full)
    board.stop()
    board.stop()
    where = played / "tensorboard"
    assert heard.said == [
        f"{where} could not be written: No space left on device. The run continues without TensorBoard."
    ]
