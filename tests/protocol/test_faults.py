"""Clients that fail: who and how is fixed by the seed, and every engine leaves out the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from observers import Watch
from problems import quadratic
from runs_on_disk import contents
from torch import nn

from fedhv import FSMGDA, FedCMOO, FedHV, InputError, LocalTraining, Problem, Uniform, classification, run
from fedhv.engines import Parallel, Sequential, Stacked
from fedhv.methods.weights import inverse_slack_weights
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.faults import Fault, Faults
from fedhv.protocol.intake import Intake
from fedhv.protocol.requests import TaskGradients, TaskUpdates, Train
from fedhv.protocol.screening import Screening, TooFewReplies
from fedhv.protocol.traffic import BYTES_PER_SCALAR
from fedhv.runs.config import load_setting, setting_from_tables
from fedhv.simulation.rounds import Plan, initial_state, simulate
from fedhv.support.errors import FedHVError, Interrupted

LOCAL = LocalTraining(steps=2, batch_size=4, learning_rate=0.1)
METHODS = (FedHV(reference=(2.0, 2.0)), Uniform(), FSMGDA(), FedCMOO())
MIXED = Faults(drop_out=0.15, late=0.1, crash=0.1, non_finite=0.15, absurd=0.1, false_report=0.1, scale=-3.0, claim=0.5)


class Two(nn.Module):
    """Two heads on one layer, nothing random inside."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 6), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 2)])

    def forward(self, inputs):
        return [head(self.encoder(inputs)) for head in self.heads]


def problem(clients: int = 12) -> Problem:
    rng = np.random.default_rng(3)

    def part(n: int):
        return rng.standard_normal((n, 5)).astype(np.float32), [rng.integers(0, 3, n), rng.integers(0, 2, n)]

    tasks = [classification("kind", 3), classification("mark", 2)]
    return Problem.from_clients(Two, tasks, [part(6 + k) for k in range(clients)], part(20))


def plan(faults: Faults, **changes) -> Plan:
    return Plan(rounds=6, participants=6, local=LOCAL, evaluate_every=0, faults=faults, **changes)


# --- who fails --------------------------------------------------------------------------------------------


def test_a_fault_is_a_function_of_seed_round_and_client():
    for t in range(20):
        assert MIXED.of(5, t, 3) == MIXED.of(5, t, 3)
    drawn = [[MIXED.of(seed, t, 3) for t in range(50)] for seed in (5, 6)]
    assert drawn[0] != drawn[1]
    assert [MIXED.of(5, t, 4) for t in range(50)] != drawn[0]


def test_every_fault_comes_as_often_as_its_rate_says():
    drawn = [MIXED.of(0, t, k) for t in range(200) for k in range(50)]
    for fault, rate in MIXED.rates.items():
        assert drawn.count(fault) / len(drawn) == pytest.approx(rate, abs=0.015), fault
    assert drawn.count(None) / len(drawn) == pytest.approx(0.3, abs=0.015)


def test_the_same_clients_always_fail_if_the_pattern_says_so():
    same = replace(MIXED, pattern="same")
    for client in range(30):
        assert len({same.of(0, t, client, attempt) for t in range(10) for attempt in range(2)}) == 1
    assert len({same.of(0, 0, client) for client in range(30)}) > 1


def test_a_repeated_round_draws_its_faults_anew():
    assert [MIXED.of(0, t, 1, attempt=0) for t in range(40)] != [MIXED.of(0, t, 1, attempt=1) for t in range(40)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drop_out": 1.5}, "faults.drop_out` should be a rate"),
        ({"late": -0.1}, "faults.late"),
        ({"crash": float("nan")}, "faults.crash"),
        ({"drop_out": 0.6, "late": 0.6}, "add up to at most 1"),
        ({"scale": float("inf")}, "faults.scale"),
        ({"claim": ()}, "faults.claim"),
        ({"pattern": "sometimes"}, "faults.pattern"),
    ],
)
def test_rates_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Faults(**changes)


def test_a_claim_for_other_tasks_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="should be one number, or a list of 2"):
        run("digits", "uniform", rounds=1, out=tmp_path / "r", override=["faults.claim=[1.0, 2.0, 3.0]"])
    assert not (tmp_path / "r").exists()


# --- what the server makes of it --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
def test_every_engine_leaves_out_the_same_clients_and_learns_the_same(method):
    world = problem()
    one = list(simulate(Sequential(world), method, plan(MIXED)))
    assert sum(len(finished.refused) for finished in one) > 5
    with Parallel(world, workers=2) as engine:
        for a, b in zip(one, simulate(engine, method, plan(MIXED)), strict=True):
            assert b.refused == a.refused
            assert torch.equal(b.state.model, a.state.model)  # to the bit, also where task gradients were kept
            assert (b.traffic, b.weights, b.attempts) == (a.traffic, a.weights, a.attempts)
    for a, b in zip(one, simulate(Stacked(world), method, plan(MIXED)), strict=True):
        assert b.refused == a.refused
        assert b.traffic == a.traffic
        assert (b.state.model - a.state.model).norm() <= 1e-4 * a.state.model.norm()


@pytest.mark.parametrize("engine", [Sequential, Parallel, Stacked], ids=lambda engine: engine.__name__)
def test_without_faults_screening_changes_no_bit(engine):
    world = problem()
    cohort = sample_cohort(0, 0, len(world.clients), 5, LOCAL)
    rules = Intake(Screening(max_update=1e6, max_report=1e6))
    with engine(world) as place:
        theta = initial_state(place, Uniform(), 0).model
        for request in (Train(theta, report="all"), TaskUpdates(theta), TaskGradients(theta)):
            plain, judged = place.ask(Call(request, cohort)), place.ask(Call(request, cohort, rules))
            assert judged.refused == ()
            assert list(judged.cohort.clients) == list(cohort.clients)
            for name in ("mean_update", "reports", "mean_updates"):
                if hasattr(plain, name):
                    assert torch.equal(getattr(plain, name), getattr(judged, name))


@pytest.mark.parametrize("engine", [Sequential, Stacked], ids=lambda engine: engine.__name__)
def test_the_mean_is_over_those_who_are_taken(engine):
    world = problem()
    place = engine(world)
    theta = initial_state(place, Uniform(), 0).model
    faults = Faults(non_finite=0.5)
    whole = sample_cohort(0, 0, len(world.clients), 8, LOCAL)
    bad = [k for k in whole.clients if faults.of(0, 0, k) is Fault.NON_FINITE]
    good = replace(whole, clients=[k for k in whole.clients if k not in bad])
    assert bad
    assert good.clients
    faulty = place.ask(Call(Train(theta, report="all"), whole, Intake(faults=faults)))
    honest = place.ask(Call(Train(theta, report="all"), good))
    assert list(faulty.cohort.clients) == good.clients
    assert [refusal.client for refusal in faulty.refused] == bad
    torch.testing.assert_close(faulty.mean_update, honest.mean_update)
    torch.testing.assert_close(faulty.reports, honest.reports)


@pytest.mark.parametrize(
    ("fault", "down", "up"), [("drop_out", 6, 3), ("crash", 6, 3), ("late", 6, 6), ("non_finite", 6, 6)]
)
def test_bytes_are_counted_as_they_were_sent(fault, down, up):
    # a rate at which exactly three of the six clients of round 1 fail
    world = problem()
    clients = sample_cohort(0, 0, len(world.clients), 6, LOCAL).clients
    points = sorted(float(np.nextafter(_point(k), 1)) for k in clients)
    first = next(simulate(Sequential(world), Uniform(), plan(Faults(**{fault: points[2]}))))
    d = Sequential(world).layout.d
    assert len(first.refused) == 3
    assert first.traffic.down == BYTES_PER_SCALAR * d * down
    assert first.traffic.up == BYTES_PER_SCALAR * d * up


def _point(client: int) -> float:
    from fedhv.problem.random import Purpose, stream

    return stream(0, Purpose.FAULTS, 0, client, 0).random()


def test_a_client_that_is_left_out_stays_out_for_the_rest_of_the_round():
    asked = []

    class Listening(Sequential):
        def ask(self, call):
            asked.append((type(call.request).__name__, call.cohort.round, set(call.cohort.clients)))
            return super().ask(call)

    finished = list(simulate(Listening(problem()), FedCMOO(), plan(MIXED)))
    for t, done in enumerate(finished):
        if done.attempts == 1:
            stages = [clients for _, round, clients in asked if round == t]
            assert stages[0] >= stages[1] >= stages[2]
    assert any(done.refused for done in finished)


def test_a_round_with_too_few_replies_is_tried_with_another_cohort_and_its_bytes_count():
    world, tried = problem(), Screening(min_replies=5, attempts=50)
    finished = list(simulate(Sequential(world), Uniform(), plan(Faults(drop_out=0.3), screening=tried)))
    assert any(done.attempts > 1 for done in finished)
    d = Sequential(world).layout.d
    for done in finished:
        assert done.traffic.down == BYTES_PER_SCALAR * d * 6 * done.attempts
        assert done.exchanges == done.attempts
        record = done.as_dict()
        assert record.get("attempts", 1) == done.attempts
        assert len(record.get("refused", [])) == len(done.refused)
    cohorts = [set(sample_cohort(0, 0, 12, 6, LOCAL, attempt).clients) for attempt in range(4)]
    assert len({frozenset(cohort) for cohort in cohorts}) > 1


def test_a_run_that_never_gets_enough_replies_stops_and_keeps_its_state(tmp_path):
    with pytest.raises(TooFewReplies, match=r"Round 1, after 3 attempts.*needs 1 reply.*no answer") as caught:
        run("digits", "uniform", rounds=3, out=tmp_path / "r", engine="sequential", override=["faults.drop_out=1.0"])
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r" / "summary.json").exists()


def test_more_replies_than_participants_are_refused():
    with pytest.raises(InputError, match=r"server.min_replies` should be at most `federation.participants`"):
        load_setting("digits", ["server.min_replies=6"])


def test_an_absurd_update_is_refused_where_there_is_a_bound():
    world, faults = problem(), Faults(absurd=0.3, scale=1e9)
    bound = Screening(max_update=100.0)
    for engine in (Sequential(world), Stacked(world)):
        done = list(simulate(engine, Uniform(), plan(faults, screening=bound)))
        refused = [refusal for finished in done for refusal in finished.refused]
        assert refused
        assert all("an update of norm" in refusal.reason for refusal in refused)
        assert done[-1].state.model.abs().max() < 1e3


def test_a_false_report_moves_the_weights_and_nothing_else():
    world, method = quadratic(), FedHV(reference=(60.0, 60.0))
    lying = Plan(rounds=1, participants=2, local=LOCAL, faults=Faults(false_report=1.0, claim=(50.0, 0.0)))
    honest = next(simulate(Sequential(world), method, replace(lying, faults=Faults())))
    false = next(simulate(Sequential(world), method, lying))
    assert torch.equal(honest.state.model, false.state.model)
    expected = inverse_slack_weights(torch.tensor([50.0, 0.0]), (60.0, 60.0))
    assert torch.allclose(false.state.weights, expected)
    assert not torch.allclose(honest.state.weights, expected, atol=1e-2)


@pytest.mark.parametrize("claim", [float("nan"), float("inf"), -1.0])
def test_a_report_that_no_loss_can_be_is_refused(claim):
    for engine in (Sequential(problem()), Stacked(problem())):
        done = list(simulate(engine, METHODS[0], plan(Faults(false_report=0.3, claim=claim))))
        assert any(finished.refused for finished in done)
        assert all("report" in refusal.reason for finished in done for refusal in finished.refused)


# --- in a setting and on disk -----------------------------------------------------------------------------


def test_a_setting_has_faults_and_rules_and_shows_them(command):
    shown = command("show", "digits", "--set", "faults.drop_out=0.25", "--set", "server.min_replies=2").out
    assert "[faults]\ndrop_out = 0.25" in shown
    assert "[server]\nmin_replies = 2\nattempts = 3" in shown
    tables = {"benchmark": "digits", "federation": {"clients": 4, "participants": 2, "samples_per_client": 9}}
    tables |= {"training": {"rounds": 1, "batch_size": 2, "local_steps": 1}, "faults": {"dropout": 0.5}}
    with pytest.raises(InputError, match=r"Unknown key 'faults.dropout'. Did you mean 'faults.drop_out'"):
        setting_from_tables(tables)


def test_a_faulty_run_is_resumed_bit_for_bit_and_sums_up_what_it_left_out(tmp_path):
    changes = ["faults.drop_out=0.3", "faults.non_finite=0.2", "server.min_replies=3", "server.attempts=20",
               "training.local_steps=2"]  # fmt: skip
    options = {"rounds": 6, "override": changes, "engine": "sequential", "reference": [3.0, 3.0]}
    whole = run("digits", out=tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        run("digits", out=tmp_path / "broken", observer=Watch(3), **options)
    run("digits", out=tmp_path / "broken", resume=True, **options)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    said = whole.summary.refused
    listed = [refusal for record in whole.history for refusal in record.get("refused", [])]
    assert said.replies == len(listed) == sum(said.reasons.values())
    assert said.repeated_rounds == sum("attempts" in record for record in whole.history) > 0
    assert set(said.reasons) == {"no answer", "update with numbers that are not finite"}


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    options = {"rounds": 4, "engine": "sequential", "reference": [3.0, 3.0], "override": ["training.local_steps=1"]}
    run("digits", out=tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        run("digits", out=tmp_path / "old", observer=Watch(3), **options)
    path = tmp_path / "old" / "config.toml"
    text = path.read_text()
    new = ("aggregate", "trim", "smoothing", "watch", "explosion", "drop_out", "late", "crash", "non_finite", "absurd",
           "false_report", "scale", "claim", "pattern", "min_replies", "attempts", "grace", "profile", "max_jump",
           "[setting.faults]", "[setting.server]")  # fmt: skip
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith(new)) + "\n")
    assert "faults" not in path.read_text()
    run("digits", out=tmp_path / "old", resume=True, **options)
    assert contents(tmp_path / "old") == contents(tmp_path / "whole")
    with pytest.raises(InputError, match=r"faults\.late"):
        run("digits", out=tmp_path / "old", resume=True, **{**options, "override": ["faults.late=0.1"]})


def test_a_worker_gets_the_gradients_of_its_own_client_after_others_were_left_out():
    """The client after one that was refused must not be given that one's kept gradients."""
    world, faults = problem(), Faults(non_finite=0.4)
    one = list(simulate(Sequential(world), FedCMOO(), plan(faults)))
    assert any(finished.refused for finished in one)
    with Parallel(world, workers=2) as engine:
        other = list(simulate(engine, FedCMOO(), plan(faults)))
    assert all(torch.equal(a.state.model, b.state.model) for a, b in zip(one, other, strict=True))


def test_a_client_goes_on_with_what_it_sent_whatever_became_of_it_on_the_way():
    """The corrupted gradients are what the server has; the client's Gram terms are of its own."""
    world, faults = problem(), Faults(absurd=0.4, scale=3.0)
    one = list(simulate(Sequential(world), FedCMOO(), plan(faults)))
    with Parallel(world, workers=2) as engine:
        other = list(simulate(engine, FedCMOO(), plan(faults)))
    assert [b.weights for b in other] == [a.weights for a in one]
    stacked = list(simulate(Stacked(world), FedCMOO(), plan(faults)))
    assert stacked[1].weights == pytest.approx(one[1].weights, rel=1e-4)


def test_a_run_with_a_claim_that_is_no_number_is_one_run(tmp_path):
    options = {"rounds": 2, "engine": "sequential", "out": tmp_path / "r"}
    faults = ["faults.false_report=0.3", "training.local_steps=1"]
    run("digits", "uniform", override=[*faults, "faults.claim=nan"], **options)
    run("digits", "uniform", override=[*faults, "faults.claim=nan"], resume=True, **options)
    with pytest.raises(InputError, match=r"faults\.claim"):
        run("digits", "uniform", override=[*faults, "faults.claim=[1.0, nan]"], resume=True, **options)


def test_a_run_whose_clients_all_send_nan_has_diverged():
    with pytest.raises(FedHVError, match=r"In round 1 .*diverged\. Lower .*task '"):
        list(simulate(Sequential(problem()), Uniform(), plan(Faults(non_finite=1.0))))
