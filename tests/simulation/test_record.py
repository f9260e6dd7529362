"""A round as the history keeps it: nothing is lost on its way to the file and back, and its keys stand in one place."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pytest

import fedhv
from fedhv.methods.parts.watch import Breach
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.protocol.request import Refusal
from fedhv.runs.summary import Summary
from fedhv.runs.summary_tables import Communication
from fedhv.simulation.record import KEYS, Round

PLAIN = Round(number=3, weights=(0.25, 0.75), downlink_bytes=8, uplink_bytes=4, exchanges=1, seconds=0.5)
FULL = Round(
    number=4,
    weights=(0.25, 0.75),
    downlink_bytes=8,
    uplink_bytes=4,
    exchanges=2,
    seconds=0.125,
    warm_up=20.5,
    shared=4,
    report=(1.0, 2.0),
    slack=(-0.5, 0.25),
    floored=1,
    watch=(Breach(0, -0.5, "above reference"),),
    raised=(1.25, 2.25),
    weights_kept=True,
    absent=(1,),
    refused=(Refusal(7, "no answer"),),
    attempts=2,
    step_norm=0.5,
    cohort={"present": 9, "asked": [1, 7], "taken": [1], "norms": [0.5]},
    validation={"mean_loss": 1.5, "clients": {"client": [1], "loss": [[1.0, 2.0]]}},
    evaluation=Evaluation.of([TaskScore("a", 50.0, 1.0), TaskScore("b", 75.0, float("inf"))]),
    extra={"serialised": {"down": 3}, "mine": [1, None]},
)


@pytest.mark.parametrize("each", [PLAIN, FULL], ids=["plain", "full"])
def test_nothing_is_lost_on_the_way_to_the_file_and_back(each):
    line = json.dumps(each.as_dict())
    assert Round.read(json.loads(line)) == each
    assert json.dumps(Round.read(json.loads(line)).as_dict()) == line


def test_what_a_round_has_not_is_not_written():
    assert set(PLAIN.as_dict()) == {"round", "weights", "downlink_bytes", "uplink_bytes", "exchanges", "seconds"}
    assert set(FULL.as_dict()) == KEYS | set(FULL.extra)


@pytest.mark.parametrize("key", ["round", "weights", "downlink_bytes", "uplink_bytes", "exchanges", "seconds"])
def test_what_every_round_has_is_asked_for(key):
    record = PLAIN.as_dict()
    del record[key]
    with pytest.raises(ValueError, match=f"`{key}` should be"):
        Round.read(record)


def test_a_method_that_records_something_else_under_a_known_key_is_refused():
    class Odd(fedhv.Uniform):
        def round(self, state):
            replies = yield fedhv.Train(state.model)
            return fedhv.State(state.model + replies.mean_update, state.weights, record={"slack": "none"})

    with pytest.raises(fedhv.InputError, match=r"Method 'uniform': in the State's record `slack` should be a list\.$"):
        fedhv.run("digits", Odd(), rounds=1, participants=1, local_steps=1)


# --- one place for every key ------------------------------------------------------------------------------

HOMES = {
    "simulation/record.py": KEYS,
    "runs/summary.py": {*Summary.__dataclass_fields__} - KEYS,
    "runs/summary_tables.py": {*Communication.__dataclass_fields__, "repeated_rounds", "lowest_slack"} - KEYS,
}
SHARED = {
    # Words of the field that settings, methods, requests, published tables and events use for other things too.
    "communication", "device", "evaluation", "hypervolume", "loss", "machine", "mean_accuracy", "mean_loss", "method",
    "precision", "reference", "report", "round", "rounds", "seconds", "seed", "setting", "slack", "tasks", "watch",
    "weights", "worst_accuracy", "attempts", "refused", "engine", "floored", "floor_activations",
    "cohort", "validation", "labels", "rates", "shared", "absent",
}  # fmt: skip
PACKAGE = Path(fedhv.__file__).parent


@cache
def parsed() -> dict[str, list[ast.AST]]:
    """Constants and subscripts of every file of the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant | ast.Subscript)
        ]
        for path in PACKAGE.rglob("*.py")
    }


@pytest.mark.parametrize("home", HOMES)
def test_a_key_is_spelt_in_one_file(home):
    mine = HOMES[home] - SHARED
    assert len(mine) > 3
    for name, nodes in parsed().items():
        if name in HOMES or name.startswith("methods/"):  # a method says by its keys what it leaves in the history
            continue
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert not texts & mine, name


def test_no_record_of_a_history_is_read_by_its_keys():
    """`record["slack"]` outside the files that own the keys is a reader of its own."""
    for name, nodes in parsed().items():
        for node in nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and name not in HOMES:
                owner = ast.unparse(node.value).split(".")[-1]
                assert owner not in ("history", "summary") or not isinstance(node.slice.value, str), name
                assert not (owner == "record" and node.slice.value in KEYS), f"{name}: {ast.unparse(node)}"
