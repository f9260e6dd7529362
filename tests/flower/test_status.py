"""`fedhv flower status` and `fedhv flower stop`."""

from __future__ import annotations

import json

import pytest
import torch
from problems import everything_random

from fedhv import FedHV
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.server import serve
from fedhv.flower.status import Status, status, stop
from fedhv.flower.up import privacy_spent
from fedhv.protocol.accounting import gaussian_epsilon
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Refusal
from fedhv.runs.back import take_back
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round
from fedhv.support.errors import InputError, Interrupted
from flower.local_grid import LocalGrid

OVERRIDE = ["training.rounds=5", "training.batch_size=8", "training.local_steps=2", "federation.participants=3"]

FEDHV = FedHV(reference=(9.0, 9.0))


class Stops(Observer):
    """Asks for the end in a round, as another terminal would."""

    def __init__(self, folder, number=2):
        self.folder, self.number, self.seen = folder, number, None

    def round(self, finished):
        if finished.number == self.number:
            self.seen = status(self.folder)
            stop(self.folder)


def play(folder, observer=None, problem=None, method=FEDHV, override=()):
    problem = problem or everything_random()
    nodes = LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})
    for node, context in nodes.nodes.items():
        context.node_config["name"] = f"site-{node}"
    patience = Patience(reply=2, nodes=2, again=1)
    override = [*OVERRIDE, *override]
    return serve(nodes, problem, method, out=folder, override=override, patience=patience, observer=observer)


def test_a_run_is_stopped_after_its_round_and_goes_on(tmp_path, command):
    watching, problem = Stops(tmp_path / "run"), everything_random()
    with pytest.raises(Interrupted, match="fedhv flower stop"):
        play(tmp_path / "run", watching, problem)
    assert (watching.seen.state, watching.seen.done, watching.seen.planned) == ("running", 2, 5)
    after = status(tmp_path / "run")
    assert (after.state, after.done) == ("stopped", 2)
    assert not (tmp_path / "run" / "stop").exists()
    play(tmp_path / "run", problem=problem)
    shown = command("flower", "status", str(tmp_path / "run"))
    assert "finished, round 5 of 5" in shown.out
    assert "last round: 5 present, 3 asked, 3 taken" in shown.out
    assert "site-" in shown.out
    found = json.loads(command("flower", "status", str(tmp_path / "run"), "--json").out)
    assert (found["state"], found["done"]) == ("finished", 5)
    assert len(found["last"]["cohort"]["taken"]) == 3


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_request_to_stop_in_the_last_round_has_no_effect_later(through, tmp_path):
    watching, problem = Stops(tmp_path, number=5), everything_random()
    if through == "server app":
        play(tmp_path, watching, problem)
    else:
        strategy = Strategy(FEDHV, problem, override=OVERRIDE, folder=tmp_path, observer=watching)
        strategy.start(LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)}))
    assert (watching.seen.state, status(tmp_path).state) == ("running", "finished")
    assert not (tmp_path / "stop").exists()
    if through == "server app":
        take_back(tmp_path, 4)
        play(tmp_path, problem=problem)


def test_a_client_that_was_asked_in_two_attempts_is_counted_once(tmp_path):
    played = Round(
        number=1,
        weights=(1.0,),
        downlink_bytes=1,
        uplink_bytes=1,
        exchanges=1,
        attempts=2,
        cohort={"present": 3, "asked": [0, 1, 0, 1], "taken": [0]},
        refused=(Refusal(1, "no reply within 5 s"),),
        extra={"nodes": [{"client": 0, "node": "9", "name": "north", "seconds": 1.5}]},
    )
    assert Status(tmp_path, "running", 1, 2, played).lines() == [
        f"{tmp_path}: running, round 1 of 2",
        "last round: 3 present, 2 asked, 1 taken",
        "  client 0: node 9 north, taken, 1.5 s",
        "  client 1: refused, no reply within 5 s",
    ]


def test_nothing_runs_nothing_is_stopped(tmp_path, command):
    play(tmp_path / "run")
    outcome = command("flower", "stop", str(tmp_path / "run"))
    assert outcome.code == InputError.exit_code
    assert "Expected a running server" in outcome.err


def test_a_calibration_is_not_longer_than_the_run_that_it_is_for(tmp_path):
    run = play(tmp_path / "run", method="fedhv", override=["training.rounds=3"])
    assert run.reference.provenance.rounds == 3


def test_privacy_spent_counts_every_request_of_the_client_that_was_asked_most(tmp_path):
    run = play(tmp_path / "run", override=["record.cohort=true"])
    asked = [client for played in run.rounds for client in played.cohort["asked"]]
    most = max(asked.count(k) for k in range(5))
    said = privacy_spent(ReportPrivacy(3.0, 2.0), tmp_path / "run")
    assert f"{most} noised releases" in said
    assert f"ε = {gaussian_epsilon({2.0: most}):.3g} " in said


def test_a_run_goes_back_to_a_kept_round_and_ends_as_if_nothing_had_happened(tmp_path, command):
    problem, kept = everything_random(), ["record.checkpoints=2"]
    whole = play(tmp_path / "whole", problem=problem, override=kept)
    play(tmp_path / "run", problem=problem, override=kept)
    beyond = command("flower", "back", str(tmp_path / "run"), "--resume-from", "9")
    assert beyond.code == InputError.exit_code
    assert "`--resume-from` should be at most 5, the last round of" in beyond.err
    assert (tmp_path / "run" / "summary.json").exists()
    missing = command("flower", "back", str(tmp_path / "run"), "--resume-from", "1")
    assert missing.code == InputError.exit_code
    assert "Found rounds: 2, 4" in missing.err
    went = command("flower", "back", str(tmp_path / "run"), "--resume-from", "3")
    assert went.code == 0
    assert "continues after round 2 (round 3 was not kept)" in went.out
    again = play(tmp_path / "run", problem=problem, override=kept)
    assert [played.number for played in again.rounds] == [1, 2, 3, 4, 5]
    assert all(torch.equal(again.state_dict[name], value) for name, value in whole.state_dict.items())
