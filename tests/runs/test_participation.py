"""Who took part in the rounds of a run, from its history."""

from __future__ import annotations

from fedhv.protocol.request import Refusal
from fedhv.runs.participation import participation
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
    north, other = participation([first, second])
    assert (north.name, north.node, north.asked, north.answered, north.taken) == ("north", "9", 2, 2, 2)
    assert (north.seconds, north.last_seconds, north.norm, north.last_taken) == (2.0, 3.0, 0.6, 2)
    assert (other.asked, other.answered, other.taken, other.refused, other.last_taken) == (2, 1, 1, 1, 1)
    assert (other.reason, other.reason_round) == ("no reply within 5 s", 2)


def test_a_reply_without_a_measured_time_does_not_shorten_the_mean():
    timed = {"client": 0, "node": "9", "seconds": 4.0}
    rounds = [
        Round(number=1, extra={"nodes": [timed]}, **PLAIN),
        Round(number=2, extra={"nodes": [{"client": 0, "node": "9"}]}, **PLAIN),
    ]
    (node,) = participation(rounds)
    assert (node.answered, node.seconds) == (2, 4.0)
