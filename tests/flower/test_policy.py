"""What a node's own policy allows, whatever a server asks, and what it says that was spent."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from observers import Watch
from problems import everything_random
from torch import Tensor

from fedhv import FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.flower import Patience, Strategy, client_app
from fedhv.flower.policy import Policy, UpdatePrivacy
from fedhv.flower.server import serve
from fedhv.protocol.accounting import delta_of, gaussian_epsilon
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import tensor
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Reply, Request
from fedhv.support.errors import FedHVError, InputError
from flower.local_grid import LocalGrid

PATIENCE = Patience(reply=0.3, nodes=0.3, again=1e-6)
OVERRIDE = [
    "training.rounds=3",
    "training.batch_size=8",
    "training.local_steps=2",
    "federation.participants=5",
    "server.outlier=inf",
    "evaluation.every=0",
    "evaluation.explosion=inf",
]
FEDHV = FedHV(reference=(1e6, 1e6))


def written(folder, epsilon=None, clip=0.5, noise=1.0):
    folder.mkdir(exist_ok=True)
    lines = ["[reports]", "clip = 3.0", f"noise = {noise}", "[updates]", f"clip = {clip}", f"noise = {noise}"]
    if epsilon is not None:
        lines += ["[budget]", f"epsilon = {epsilon}", f"ledger = '{folder / 'ledger'}'"]
    (folder / "policy.toml").write_text("\n".join(lines))
    return folder / "policy.toml"


def grid_with(path, problem=None):
    """Node 3, which holds partition 2, has a policy."""
    problem = problem or everything_random()
    made = LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})
    made.nodes[3].node_config["policy"] = str(path)
    made.problem = problem
    return made


def spent(folder):
    return json.loads((folder / "ledger" / "spent.json").read_text())


def test_epsilon_by_hand_for_two_configurations():
    """δ(ε) of N(0, 1) against N(μ, 1), integrated: 30 releases at z = 5, and 4 at z = 1 with 10 at z = 2."""
    for releases in ({5.0: 30}, {1.0: 4, 2.0: 10}):
        mu = math.sqrt(sum(n / z**2 for z, n in releases.items()))
        epsilon = gaussian_epsilon(releases, 1e-5)
        x = np.linspace(-40, 40, 2_000_001)
        p, q = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0.0))
        assert np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x) == pytest.approx(1e-5, rel=1e-3)


def test_epsilon_is_never_more_than_renyi_accounting_gives():
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    for z, count in ((0.5, 30), (2.0, 30), (8.0, 30), (20.0, 1)):
        renyi = RdpAccountant(neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE)
        renyi.compose(accounting.GaussianDpEvent(z), count)
        assert 0 < gaussian_epsilon({z: count}) <= renyi.get_epsilon(1e-5)


def test_epsilon_at_its_ends():
    assert gaussian_epsilon({}) == 0.0
    assert gaussian_epsilon({0.0: 1}) == math.inf
    assert gaussian_epsilon({1e9: 1}) == 0.0
    assert delta_of(gaussian_epsilon({0.05: 100}), 200.0) == pytest.approx(1e-5, rel=1e-2)
    with pytest.raises(InputError, match="delta"):
        gaussian_epsilon({1.0: 1}, delta=0.0)


def test_what_leaves_the_node_is_clipped_whatever_the_server_asks(tmp_path):
    nodes = grid_with(written(tmp_path / "node", clip=1e-4, noise=0.0))
    record = serve(nodes, nodes.problem, FEDHV, override=OVERRIDE, patience=PATIENCE).history[0]
    norms = dict(zip(record["cohort"]["taken"], record["cohort"]["norms"], strict=True))
    assert norms[2] == pytest.approx(1e-4, rel=0.05)
    assert min(norms[k] for k in (0, 1, 3, 4)) > 1e-3


def test_the_noise_of_an_update_has_the_size_that_is_promised():
    update = UpdatePrivacy(clip=0.5, noise=2.0).protect(torch.zeros(200_000), np.random.default_rng(1))
    assert float(update.std()) == pytest.approx(2 * 2.0 * 0.5, rel=0.02)


def test_the_ledger_counts_over_runs_and_an_empty_budget_answers_nothing(tmp_path):
    """A round of FedHV is a report and an update; z = 5, δ = 1e-5."""
    five = gaussian_epsilon({5.0: 2 * 5})
    nodes = grid_with(written(tmp_path / "node", epsilon=five + 1e-6, noise=5.0))
    first = serve(nodes, nodes.problem, FEDHV, override=OVERRIDE, patience=PATIENCE, seed=1).history
    assert all(2 in record["cohort"]["taken"] for record in first)
    assert spent(tmp_path / "node")["releases"] == {"5.0": 6}
    second = serve(nodes, nodes.problem, FEDHV, override=OVERRIDE, patience=PATIENCE, seed=2).history
    assert [2 in record["cohort"]["taken"] for record in second] == [True, True, False]
    assert "privacy budget is used up" in second[2]["refused"][0]["reason"]
    assert spent(tmp_path / "node")["epsilon"] == pytest.approx(five)


def test_a_request_that_is_repeated_is_answered_once(tmp_path):
    """600 copies of one message give 600 copies of one answer, paid once; an old one is refused."""
    nodes = grid_with(written(tmp_path / "node", epsilon=100.0))
    strategy = Strategy(FEDHV, nodes.problem, override=OVERRIDE, patience=PATIENCE)
    strategy.start(nodes)
    message = next(m for m in nodes.sent if m.metadata.message_type == "train" and m.metadata.dst_node_id == 3)
    before = spent(tmp_path / "node")
    answers = {nodes.app(message, nodes.nodes[3]).content.array_records["arrays"]["model"].data for _ in range(600)}
    assert len(answers) == 1
    assert spent(tmp_path / "node") == before
    for kept in (tmp_path / "node" / "ledger").glob("*.safetensors"):
        kept.unlink()
    with pytest.raises(FedHVError, match="does not answer it again"):
        nodes.app(message, nodes.nodes[3])


def test_an_operator_sees_what_was_spent(tmp_path, command):
    path = written(tmp_path / "node", epsilon=100.0)
    before = command("flower", "spent", str(path))
    assert "ε = 0 of 100" in before.out
    nodes = grid_with(path)
    serve(nodes, nodes.problem, FEDHV, override=OVERRIDE, patience=PATIENCE)
    after = command("flower", "spent", str(path))
    found = spent(tmp_path / "node")
    assert f"ε = {found['epsilon']:.4g} of 100 at δ = 1e-05" in after.out
    assert f"{len(found['answers'])} answers" in after.out
    loose = tmp_path / "loose.toml"
    loose.write_text("[reports]\nclip = 3.0\nnoise = 1.0\n")
    assert "no [budget]" in command("flower", "spent", str(loose)).err.replace("\n", " ")


def test_a_damaged_ledger_answers_nothing(tmp_path):
    nodes = grid_with(written(tmp_path / "node", epsilon=100.0))
    (tmp_path / "node" / "ledger").mkdir()
    (tmp_path / "node" / "ledger" / "spent.json").write_text("{")
    record = serve(nodes, nodes.problem, FEDHV, override=OVERRIDE, patience=PATIENCE).history[0]
    assert "cannot be read" in record["refused"][0]["reason"]


def test_what_the_policy_has_no_rule_for_does_not_leave(tmp_path):
    nodes = grid_with(written(tmp_path / "node"))
    record = serve(nodes, nodes.problem, FedCMOO(), override=OVERRIDE, patience=PATIENCE).history[0]
    assert "policy has no protection for" in record["refused"][0]["reason"]


@dataclass(frozen=True)
class TwoReports(Reply):
    """The reply of a request of one's own: two lists of losses, which are noised by themselves."""

    before: Tensor = tensor("m", bound="report")
    after: Tensor = tensor("m", bound="report")
    update: Tensor = tensor("d", bound="update")


@dataclass(frozen=True)
class Asks(Request):
    """Its reply has two reports."""

    reply = TwoReports

    def answer(self, me):
        raise NotImplementedError


def test_every_release_of_an_answer_is_counted(tmp_path):
    path = written(tmp_path / "node", epsilon=8.0, noise=2.0)
    path.write_text(path.read_text().replace("clip = 0.5\nnoise = 2.0", "clip = 0.5\nnoise = 1.0"))
    policy = Policy.read(path)
    answer = TwoReports(torch.ones(2), torch.ones(2), torch.ones(5))
    policy.answer(Asks(), Cohort([0], 0, 0, LocalTraining()), lambda: answer)
    assert policy.spent() == (gaussian_epsilon({2.0: 2, 1.0: 1}), 1)


def test_a_budget_needs_noise(tmp_path):
    path = written(tmp_path / "node", epsilon=1.0, noise=0.0)
    with pytest.raises(InputError, match="should have noise"):
        Policy.read(path)


def test_an_empty_policy_does_not_turn_off_the_protection_of_the_app(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("")
    problem = everything_random()
    app = client_app(lambda context: problem, device="cpu", reports=ReportPrivacy(3.0, 1.0))
    nodes = LocalGrid(app, {k + 1: k for k in range(5)})
    nodes.nodes[3].node_config["policy"] = str(path)
    said = Watch()
    serve(nodes, problem, FEDHV, override=OVERRIDE, patience=PATIENCE, observer=said)
    assert any("Node 3 does not participate" in text and "Found neither" in text for text in said.said)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("[reports]\nclip = 3.0", r"The key `reports\.noise` is missing"),
        ("[reports]\nclip = 3.0\nnoise = -1.0", r"`noise` should be 0 or more\. Found `noise = -1\.0`"),
        ("[updates]\nclip = 'a'\nnoise = 1.0", r"`updates\.clip` should be a number\. Found 'a'"),
        (
            "[reports]\nclip = 3.0\nnoise = 1.0\n[budget]\nepsilon = 1.0\nledger = 'ledger'",
            "an absolute path. Found 'ledger'",
        ),
        ("reports = 3", "`reports` should be a table. Found 3"),
    ],
)
def test_what_is_wrong_in_a_policy_is_named(lines, words, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(lines)
    with pytest.raises(InputError, match=words):
        Policy.read(path)


def test_the_text_of_an_error_stays_on_a_node_with_a_policy(tmp_path):
    """It is the only thing that would leave the node without the policy's protection."""
    problem = everything_random()

    def load(context):
        if context.node_config["partition-id"] == 2:
            raise ValueError("patient 8128 has no age")
        return problem

    for protected in (False, True):
        told = Watch()
        grid = LocalGrid(client_app(load, device="cpu"), {k + 1: k for k in range(5)})
        for context in grid.nodes.values():
            context.node_config |= {"policy": str(written(tmp_path))} if protected else {}
        serve(grid, problem, FEDHV, override=OVERRIDE, patience=PATIENCE, observer=told)
        (line,) = [each for each in told.said if "Node 3 does not participate" in each]
        assert ("8128" in line) is not protected
        assert "ValueError; its text stays on this node" in line or not protected


def test_inside_a_wrapper_a_round_needs_as_many_replies_as_its_noise_is_for():
    """Four of five are silent: the noise of a mean of five would be five times too small for one."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

    from flower.local_grid import SWALLOWED

    problem = everything_random()
    nodes = LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})
    nodes.trouble = lambda m, k: SWALLOWED if k and m.metadata.message_type == "train" else None
    strategy = Strategy(Uniform(), problem, override=OVERRIDE, patience=PATIENCE)
    before = strategy.execution.state.model.clone()
    private = DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 0.1, 5)
    private.start(nodes, strategy.initial_arrays(), num_rounds=1, timeout=1, evaluate_fn=strategy.evaluate)
    assert strategy.execution.done == 0
    assert torch.equal(strategy.execution.state.model, before)
