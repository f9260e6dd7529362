"""`fedhv watch --nodes`: who was asked, who answered, how fast, and what was refused."""

from __future__ import annotations

import json

from problems import everything_random

import fedhv
from fedhv.protocol.request import Refusal
from fedhv.report.attendance import attendance
from fedhv.report.nodes import Federation
from fedhv.runs.participation import participation
from fedhv.simulation.record import Round

PLAIN = {"weights": (1.0,), "downlink_bytes": 1, "uplink_bytes": 1, "exchanges": 1}


def test_a_client_that_was_asked_in_two_attempts_was_asked_in_one_round_on_page_and_terminal(tmp_path):
    played = Round(
        number=1,
        attempts=2,
        cohort={"present": 3, "asked": [0, 1, 0, 1], "taken": [0], "norms": [0.5]},
        refused=(Refusal(1, "no reply within 5 s"), Refusal(0, "no reply within 5 s"), Refusal(1, "again none")),
        extra={"nodes": [{"client": 0, "node": "9"}]},
        **PLAIN,
    )
    first, second = participation([played])
    assert (first.asked, first.answered, first.taken, first.refused) == (1, 1, 1, 1)
    assert (second.asked, second.taken, second.refused, second.reason) == (1, 0, 1, "again none")
    page = attendance([played]).as_dict()
    assert [(row["asked"], row["taken"], row["refused"]) for row in page["clients"]] == [(1, 1, 1), (1, 0, 1)]
    assert page["about"] == "Round 1: 3 present, 2 asked, 1 taken."
    table = Federation(tmp_path, "running", 1, 2, played, [first, second]).table()
    assert table.caption == "last round: 3 present, 2 asked, 1 taken, 0.0 s"
    assert list(table.columns[2].cells) == ["1", "1"]


def test_the_command_line_shows_them_in_words_and_as_data(tmp_path, command):
    override = ["training.batch_size=8", "training.local_steps=1", "federation.participants=3", "faults.drop_out=0.3"]
    fedhv.run(everything_random(), "uniform", rounds=4, out=tmp_path / "run", override=override)
    shown = command("watch", str(tmp_path / "run"), "--nodes")
    assert shown.code == 0
    assert "finished, round 4 of 4" in shown.out
    assert "no answer" in shown.out
    found = json.loads(command("watch", str(tmp_path / "run"), "--json").out)
    assert found["state"] == "finished"
    assert sum(node["taken"] for node in found["nodes"]) == sum(
        len(played.cohort["taken"]) for played in fedhv.read_run(tmp_path / "run").rounds
    )
    wrong = command("watch", str(tmp_path / "run"), str(tmp_path), "--nodes")
    assert wrong.code == 2
    assert "folder of one run" in wrong.err
