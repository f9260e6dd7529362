"""`fedhv watch --nodes`: who was asked, who answered, how fast, and what was refused."""

from __future__ import annotations

import json

from problems import everything_random

import fedhv
from fedhv.protocol.request import Refusal
from fedhv.report.nodes import nodes_of
from fedhv.simulation.record import Round

PLAIN = {"weights": (1.0,), "downlink_bytes": 1, "uplink_bytes": 1, "exchanges": 1}


def test_what_every_node_did_is_summed_up():
    first = Round(
        number=1,
        cohort={"present": 2, "asked": [0, 1], "taken": [0, 1], "norms": [0.5, 0.7]},
        extra={
            "nodes": [
                {"client": 0, "node": "9", "name": "north", "seconds": 1.0},
                {"client": 1, "node": "8", "seconds": 2.0},
            ]
        },
        **PLAIN,
    )
    second = Round(
        number=2,
        cohort={"present": 2, "asked": [0, 1], "taken": [0], "norms": [0.6]},
        refused=(Refusal(1, "no reply within 5 s"),),
        extra={"nodes": [{"client": 0, "node": "9", "name": "north", "seconds": 3.0}]},
        **PLAIN,
    )
    north, other = nodes_of([first, second])
    assert (north.name, north.node, north.asked, north.answered, north.taken) == ("north", "9", 2, 2, 2)
    assert (north.seconds, north.last_seconds, north.norm, north.last_taken) == (2.0, 3.0, 0.6, 2)
    assert (other.asked, other.answered, other.taken, other.refused, other.last_taken) == (2, 1, 1, 1, 1)
    assert (other.reason, other.reason_round) == ("no reply within 5 s", 2)


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
