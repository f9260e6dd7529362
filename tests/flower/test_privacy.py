"""Clipped and noised reports, what they spend, and Flower's own differential privacy around our strategy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
from problems import everything_random
from runs_on_disk import records
from torch import Tensor

import fedhv
from fedhv import FSMGDA, FedHV, Uniform
from fedhv.engines.private import privately
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.server import serve
from fedhv.flower.up import RESTARTS, _show_privacy_bound
from fedhv.protocol.fields import tensor
from fedhv.protocol.privacy_cost import spent
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Reply
from fedhv.protocol.requests import TrainReply
from fedhv.runs.config import load_setting
from fedhv.simulation.observer import Observer
from fedhv.support.errors import FedHVError, InputError
from flower.local_grid import SWALLOWED, LocalGrid

OVERRIDE = [
    "training.rounds=2",
    "training.batch_size=8",
    "training.local_steps=3",
    "federation.participants=5",
    "evaluation.every=1",
]
PATIENCE = Patience(reply=2, nodes=2, again=1)


def grid(problem, **options):
    return LocalGrid(client_app(lambda context: problem, device="cpu", **options), {k + 1: k for k in range(5)})


# --- reports ----------------------------------------------------------------------------------------------


def test_reports_are_clipped_then_noised_and_never_negative():
    privacy = ReportPrivacy(clip=2.0, noise=0.5)
    rng = np.random.default_rng(0)
    losses = torch.tensor([0.1, 5.0])
    protected = torch.stack([privacy.protect_losses(losses, rng) for _ in range(20_000)]).double()
    assert privacy.sigma(2) == pytest.approx(0.5 * 2.0 * math.sqrt(2))
    assert protected.min() == 0
    assert protected[:, 1].mean() == pytest.approx(2.0, abs=0.08), "it is clipped to 2 and the noise has mean 0"
    above = protected[:, 1][protected[:, 1] > 2.0] - 2.0  # half a Gaussian: its second moment is the variance
    assert above.square().mean().sqrt() == pytest.approx(privacy.sigma(2), rel=0.03)


def test_without_noise_only_the_clip_remains_and_other_replies_pass():
    privacy, rng = ReportPrivacy(clip=2.0, noise=0.0), np.random.default_rng(0)
    assert privacy.protect_losses(torch.tensor([1.5, 3.0]), rng).tolist() == [1.5, 2.0]
    silent = TrainReply(torch.zeros(3), None)
    assert privacy.protect(silent, rng) is silent


@dataclass(frozen=True)
class Measured(Reply):
    """The reply of a request of one's own: a score that may be missing, and two metrics."""

    auc: Tensor = tensor("m", bound="metric")
    error: Tensor = tensor("m", bound="metric")
    share: Tensor | None = tensor("m", default=None, bound="score")


def test_metrics_of_any_name_do_not_leave_a_protected_client():
    privacy, rng = ReportPrivacy(clip=2.0, noise=0.0), np.random.default_rng(0)
    found = privacy.protect(Measured(torch.tensor([0.7, 0.9]), torch.tensor([3.0, 4.0])), rng)
    assert (found.auc.tolist(), found.error.tolist(), found.share) == ([0, 0], [0, 0], None)


def test_a_loss_that_is_not_finite_does_not_show():
    privacy, rng = ReportPrivacy(clip=2.0, noise=0.0), np.random.default_rng(0)
    assert privacy.protect_losses(torch.tensor([math.nan, math.inf, -math.inf]), rng).tolist() == [2.0, 2.0, 0.0]


def test_a_simulated_run_goes_on_with_the_same_clip_and_noise_alone(tmp_path):
    def play(privacy):
        options = {"override": OVERRIDE, "out": tmp_path / "run", "resume": True}
        return fedhv.run(everything_random(), FedHV(reference=(9.0, 9.0)), engine=privately(privacy), **options)

    play(ReportPrivacy(2.0, 0.5))
    play(ReportPrivacy(2.0, 0.5))
    with pytest.raises(InputError, match=r"`run\.reports\.noise` was 0\.5 and is now 0\.25"):
        play(ReportPrivacy(2.0, 0.25))


@pytest.mark.parametrize(
    "bad", [{"clip": 0.0, "noise": 1.0}, {"clip": 1.0, "noise": -1.0}, {"clip": np.nan, "noise": 1.0}]
)
def test_senseless_parameters_are_refused(bad):
    with pytest.raises(InputError):
        ReportPrivacy(**bad)


def test_nodes_noise_their_reports_and_no_two_runs_alike():
    problem, method = everything_random(), FedHV(reference=(9.0, 9.0))
    noised = [
        serve(grid(problem, reports=ReportPrivacy(3.0, 0.2)), problem, method, override=OVERRIDE, patience=PATIENCE)
        for _ in range(2)
    ]
    plain = serve(grid(problem), problem, method, override=OVERRIDE, patience=PATIENCE)
    reports = [result.history[0]["report"] for result in (*noised, plain)]
    assert reports[0] != reports[1], "the noise must not come from the seed, which the server knows"
    sigma = ReportPrivacy(3.0, 0.2).sigma(2) / math.sqrt(5)
    assert all(abs(a - b) < 6 * sigma for a, b in zip(reports[0], reports[2], strict=True))


def test_the_simulator_protects_reports_too_and_repeats_itself():
    problem, method = everything_random(), FedHV(reference=(9.0, 9.0))
    engine = privately(ReportPrivacy(3.0, 0.2))
    first, again = (fedhv.run(problem, method, engine=engine, override=OVERRIDE) for _ in range(2))
    plain = fedhv.run(problem, method, engine="sequential", override=OVERRIDE)
    assert [r["report"] for r in first.history] == [r["report"] for r in again.history]
    assert first.history[0]["report"] != plain.history[0]["report"]
    assert engine.reason == "reports clipped to 3, noise multiplier 0.2"  # as the run's config.toml has it


@pytest.mark.parametrize(("calibrates", "reports"), [(False, 2 * (5 + RESTARTS)), (True, 2 * (25 + 2 * RESTARTS))])
def test_what_a_federation_says_it_spends_is_a_bound_with_calibration_attempts_and_restarts(calibrates, reports):
    class Hearing(Observer):
        said = ""

        def message(self, text):
            self.said += text

    privacy, heard = ReportPrivacy(3.0, 2.0), Hearing()
    setting = load_setting(
        "digits",
        ["training.rounds=5", "calibration.rounds=10", "calibration.seeds=[0, 1]", "server.attempts=2"],
    )
    federation = setting.federation
    _show_privacy_bound(privacy, setting, federation.clients, calibrates, heard)
    cost = spent(privacy, rounds=reports, participants=federation.participants, clients=federation.clients)
    assert f"at most ε = {cost.to_server:.3g} towards the server" in heard.said
    assert cost.to_others < cost.to_server
    assert f"{cost.to_others:.3g}" not in heard.said, "cohorts are drawn from the nodes that are there, not from all"
    assert f"{reports} reports" in heard.said
    assert ("after 20 rounds of calibration" in heard.said) == calibrates


# --- accounting -------------------------------------------------------------------------------------------


def gaussian_rdp(z: float, times: int, delta: float) -> float:
    """ε of so many Gaussian mechanisms by Rényi's α/(2z²) and the plain conversion, which bounds the library's."""
    alphas = np.arange(2, 400)
    return float((times * alphas / (2 * z**2) + math.log(1 / delta) / (alphas - 1)).min())


def test_what_a_run_spends_towards_the_server_is_gaussian_composition():
    for noise, rounds in ((1.0, 1), (2.0, 50), (5.0, 100)):
        cost = spent(ReportPrivacy(1.0, noise), rounds=rounds, participants=5, clients=20)
        bound = gaussian_rdp(noise, rounds, 1e-5)
        assert 0.7 * bound < cost.to_server <= bound + 1e-9


def test_privacy_is_spent_as_it_should_be():
    def cost(noise=2.0, **changes):
        given = {"rounds": 30, "participants": 2, "clients": 100} | changes
        return spent(ReportPrivacy(1.0, noise), **given)

    usual = cost()
    assert usual.to_others < usual.to_server, "hidden in the crowd"
    assert cost(participants=100).to_others == pytest.approx(usual.to_server), "everybody takes part"
    assert cost(noise=4.0).to_others < usual.to_others
    assert cost(rounds=60).to_others > usual.to_others
    assert cost(rounds_of_one=1).to_server < usual.to_server
    assert cost(noise=0.0).to_server == math.inf


@pytest.mark.parametrize("bad", [{"participants": 0}, {"participants": 200}, {"delta": 0.0}, {"rounds_of_one": 31}])
def test_senseless_accounts_are_refused(bad):
    with pytest.raises(InputError):
        spent(ReportPrivacy(1.0, 1.0), **({"rounds": 30, "participants": 2, "clients": 100} | bad))


# --- model updates, through Flower's own modules ----------------------------------------------------------


def wrapped(wrap, folder, **options):
    """Two rounds of FedHV in a wrapper of Flower's; returns the strategy and the models of both rounds."""
    problem = everything_random()
    strategy = Strategy(
        FedHV(reference=(9.0, 9.0)), problem, override=OVERRIDE, patience=PATIENCE, folder=folder, seed=1
    )
    models = [torch.from_numpy(strategy.initial_arrays()["model"].numpy())]

    def evaluate(server_round, arrays):
        if server_round:
            models.append(torch.from_numpy(np.array(arrays["model"].numpy(), dtype=np.float32)))
        return strategy.evaluate(server_round, arrays)

    wrap(strategy).start(
        grid(problem, **options), strategy.initial_arrays(), num_rounds=2, timeout=5, evaluate_fn=evaluate
    )
    strategy.finish()
    return strategy, models


CLIP = 0.05


def test_server_side_clipping_bounds_the_step_of_fedhv(tmp_path):
    strategy, models = wrapped(
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 0.0, CLIP, 5), tmp_path / "run"
    )
    assert all((b - a).norm() <= CLIP * 1.001 for a, b in itertools.pairwise(models))
    assert all((b - a).norm() > CLIP / 10 for a, b in itertools.pairwise(models))
    assert torch.equal(strategy.execution.state.model, models[-1])
    assert [record["round"] for record in records(tmp_path / "run")] == [1, 2]


def test_a_round_with_too_few_replies_is_dropped_inside_a_wrapper_not_repeated_past_it():
    problem = everything_random()
    strategy = Strategy(
        FedHV(reference=(9.0, 9.0)), problem, override=[*OVERRIDE, "server.min_replies=5"], patience=PATIENCE, seed=1
    )
    before, nodes = strategy.execution.state.model.clone(), grid(problem)
    lost = iter([True])
    nodes.trouble = lambda message, k: SWALLOWED if message.metadata.message_type == "train" and next(lost, 0) else None
    private = DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, CLIP, 5)
    private.start(nodes, strategy.initial_arrays(), num_rounds=2, timeout=1, evaluate_fn=strategy.evaluate)
    assert strategy.execution.done == 1, "the first of two is dropped"
    assert 0 < (strategy.execution.state.model - before).norm() <= CLIP * 1.001


def test_the_noise_of_the_wrapper_is_in_what_is_kept(tmp_path):
    noise = 2.0
    strategy, models = wrapped(
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, noise, CLIP, 5), tmp_path / "run"
    )
    step = (models[1] - models[0]).double()
    sigma = noise * CLIP / 5
    assert step.std() == pytest.approx(math.sqrt(sigma**2 + (CLIP**2 / len(step))), rel=0.35)
    assert torch.equal(strategy.execution.state.model, models[-1]), "a checkpoint without the noise would give it away"
    kept = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert np.float32(models[-1][0].item()).tobytes() in kept


@pytest.mark.parametrize(
    ("wrapper", "mod"),
    [
        (lambda inner: DifferentialPrivacyClientSideFixedClipping(inner, 0.0, CLIP, 5), fixedclipping_mod),
        (
            lambda inner: DifferentialPrivacyClientSideAdaptiveClipping(
                inner, 0.0, 5, initial_clipping_norm=CLIP, clip_norm_lr=1e-9, clipped_count_stddev=0.0
            ),
            adaptiveclipping_mod,
        ),
    ],
)
def test_client_side_clipping_bounds_the_step_of_fedhv(wrapper, mod, tmp_path):
    _, models = wrapped(wrapper, tmp_path / "run", mods=[mod])
    assert all(0 < (b - a).norm() <= CLIP * 1.001 for a, b in itertools.pairwise(models))
    assert all("report" in record for record in records(tmp_path / "run"))


def test_local_privacy_of_the_updates(tmp_path):
    problem = everything_random()
    mods = [LocalDpMod(clipping_norm=CLIP, sensitivity=CLIP, epsilon=5.0, delta=1e-5)]
    strategy = Strategy(Uniform(), problem, override=OVERRIDE, patience=PATIENCE)
    before = strategy.execution.state.model.clone()
    strategy.start(grid(problem, mods=mods), num_rounds=1)
    step = (strategy.execution.state.model - before).double()
    sigma = CLIP * math.sqrt(2 * math.log(1.25e5)) / 5.0 / math.sqrt(5)
    assert step.std() == pytest.approx(sigma, rel=0.35)


def test_a_method_whose_messages_the_modules_cannot_protect_is_refused_not_left_unprotected():
    problem = everything_random()
    mods = [LocalDpMod(clipping_norm=CLIP, sensitivity=CLIP, epsilon=5.0, delta=1e-5)]
    with pytest.raises(FedHVError, match="a mod refused the message"):
        serve(grid(problem, mods=mods), problem, FSMGDA(), override=OVERRIDE, patience=PATIENCE)
