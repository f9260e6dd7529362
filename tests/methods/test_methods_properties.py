"""Methods as conversations: what they ask, what they make of replies written by hand, what holds for all of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import TASKS, Number, Point, everything_random, examples, quadratic
from torch import nn

from fedhv import (
    FSMGDA,
    ContinueTraining,
    FedCMOO,
    FedHV,
    FedHVError,
    GramTerms,
    InputError,
    LocalTraining,
    Problem,
    State,
    TaskGradients,
    TaskUpdates,
    Train,
    Uniform,
    inverse_slack_weights,
    regression,
)
from fedhv.engines import Sequential
from fedhv.methods import drive, make_method
from fedhv.methods.fedcmoo import project_to_simplex
from fedhv.problem.initial import initial_model
from fedhv.problem.parameters import Layout
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.cohort import Cohort, minibatches, sample_cohort
from fedhv.protocol.compression import Compressed
from fedhv.protocol.requests import (
    GramTermReplies,
    TaskGradientReplies,
    TaskUpdateReplies,
    TrainReplies,
)
from fedhv.simulation.rounds import Plan, simulate

COHORT = Cohort([0, 1], round=0, seed=0, local=LocalTraining())
LAYOUT = Layout.of(Point(), 2)
START = State(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.5, 0.5]))
UPDATE = torch.tensor([0.5, -1.0, 0.0, 2.0])


def trained(*reports, update=UPDATE):
    return TrainReplies(COHORT, LAYOUT, update, torch.tensor(reports) if reports else None)


def play(conversation, *replies):
    """The requests of a conversation that gets these replies, and the state that it ends with."""
    asked = []

    def answer(request):
        asked.append(request)
        return replies[len(asked) - 1]

    state = drive(conversation, answer)
    assert len(asked) == len(replies)
    return asked, state


# --- FedHV ------------------------------------------------------------------------------------------------


def test_fedhv_asks_once_for_training_with_a_report():
    method = FedHV(reference=(2.0, 2.0), report=3)
    (request,), _ = play(method.conversation(START), trained([1.0, 1.0], [1.0, 1.0]))
    assert type(request) is Train
    assert request.model is START.model
    assert torch.equal(request.weights, START.weights)
    assert request.report == 3


def test_fedhv_steps_by_the_server_rate_and_weighs_by_the_mean_report():
    method = FedHV(reference=(2.0, 2.0), server_lr=1.5)
    # mean report (1.5, 1), slacks (0.5, 1), weights (2/3, 1/3)
    _, state = play(method.conversation(START), trained([1.0, 0.5], [2.0, 1.5]))
    torch.testing.assert_close(state.model, START.model + 1.5 * UPDATE)
    torch.testing.assert_close(state.weights, torch.tensor([2 / 3, 1 / 3]))
    assert state.record["report"] == [1.5, 1.0]
    assert state.record["slack"] == [0.5, 1.0]


def test_the_weights_of_a_round_come_from_the_reports_of_the_round_before():
    method = FedHV(reference=(2.0, 2.0))
    reports = [[1.0, 1.5], [1.9, 0.0], [0.3, 1.0]]
    state, used = START, []
    for report in reports:
        (request,), state = play(method.conversation(state), trained(report, report))
        used.append(request.weights)
    torch.testing.assert_close(used[0], torch.tensor([0.5, 0.5]))
    for t in (1, 2):
        stale = inverse_slack_weights(torch.tensor(reports[t - 1]), [2.0, 2.0])
        fresh = inverse_slack_weights(torch.tensor(reports[t]), [2.0, 2.0])
        torch.testing.assert_close(used[t], stale)
        assert (used[t] - fresh).abs().max() > 0.1


def test_the_weights_are_sent_before_any_report_of_the_round_is_seen():
    conversation = FedHV(reference=(2.0, 2.0)).conversation(START)
    request = next(conversation)
    assert torch.equal(request.weights, START.weights)
    with pytest.raises(StopIteration) as end:
        conversation.send(trained([1.9, 0.0]))
    assert end.value.value.weights[0] > 0.9


def test_fedhv_counts_the_tasks_whose_slack_is_below_the_floor():
    _, state = play(FedHV(reference=(2.0, 2.0), floor=0.5).conversation(START), trained([1.6, 7.0]))
    assert state.record["floored"] == 2
    assert state.record["slack"] == pytest.approx([0.4, -5.0])
    torch.testing.assert_close(state.weights, torch.tensor([0.5, 0.5]))


# --- Uniform ----------------------------------------------------------------------------------------------


def test_uniform_asks_for_training_alone_and_sends_no_weights():
    (request,), state = play(Uniform(server_lr=2.0).conversation(START), trained())
    assert isinstance(request, Train)
    assert request.weights is None
    assert request.report is None
    torch.testing.assert_close(state.model, START.model + 2 * UPDATE)
    assert torch.equal(state.weights, START.weights)


def test_uniform_may_ask_for_reports_and_keeps_its_weights():
    (request,), state = play(Uniform(report="all").conversation(START), trained([9.0, 0.1]))
    assert request.report == "all"
    assert state.record["report"] == pytest.approx([9.0, 0.1])
    assert torch.equal(state.weights, START.weights)


# --- FSMGDA -----------------------------------------------------------------------------------------------


def updated(*rows):
    return TaskUpdateReplies(COHORT, LAYOUT, torch.tensor(rows))


def test_fsmgda_asks_once_for_an_update_of_every_task():
    (request,), _ = play(FSMGDA().conversation(START), updated([1.0, 0, 1, 0], [0.0, 1, 0, 1]))
    assert isinstance(request, TaskUpdates)
    assert request.model is START.model


def test_fsmgda_steps_along_the_min_norm_combination_of_the_shared_parts():
    # shared (1, 0) and (0, 2): weights (4/5, 1/5); the heads 10 and 20 are scaled by them and do not count
    _, state = play(FSMGDA(server_lr=0.5).conversation(START), updated([1.0, 0, 10, 0], [0.0, 2, 0, 20]))
    torch.testing.assert_close(state.weights, torch.tensor([0.8, 0.2]))
    torch.testing.assert_close(state.model, START.model + 0.5 * torch.tensor([0.8, 0.4, 8.0, 4.0]))


def test_fsmgda_takes_the_shorter_update_where_the_longer_points_the_same_way():
    _, state = play(FSMGDA().conversation(START), updated([3.0, 0, 0, 0], [1.0, 0, 0, 0]))
    torch.testing.assert_close(state.weights, torch.tensor([0.0, 1.0]))


def test_fsmgda_stays_where_the_updates_cancel():
    _, state = play(FSMGDA().conversation(START), updated([1.0, 2, 0, 0], [-3.0, -6, 0, 0]))
    torch.testing.assert_close(state.weights, torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(state.model, START.model)


# --- FedCMOO ----------------------------------------------------------------------------------------------


def gradients(*matrices):
    """Replies whose compressions are these 2 × 2 matrices."""
    sent = {"left": torch.tensor(matrices), "right": torch.eye(2).expand(len(matrices), 2, 2)}
    return TaskGradientReplies(COHORT, LAYOUT, stacks=sent)


def terms(known, residual):
    return GramTermReplies(COHORT, LAYOUT, torch.tensor(known).double(), torch.tensor(residual).double())


SENT = gradients([[1.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]])
NOTHING = [[0.0, 0.0], [0.0, 0.0]]


def test_fedcmoo_asks_for_gradients_then_for_gram_terms_then_for_training():
    method = FedCMOO(extra_upload=1.5)
    asked, _ = play(method.conversation(START), SENT, terms([[4.0, 0], [0, 1]], NOTHING), trained())
    first, second, third = asked
    assert isinstance(first, TaskGradients)
    assert first.model is START.model
    assert first.extra_upload == 1.5
    assert isinstance(second, GramTerms)
    assert second.extra_upload == 1.5
    # the sum of the two compressions has rank one: its own compression keeps it
    total = Compressed(second.left, second.right, (2, 2)).dense()
    torch.testing.assert_close(total, torch.tensor([[3.0, 0.0], [0.0, 0.0]]))
    assert isinstance(third, ContinueTraining)
    assert third.model is START.model
    assert third.report is None


def test_fedcmoo_trains_with_the_weights_of_the_same_round():
    asked, state = play(FedCMOO().conversation(START), SENT, terms([[9.0, 0], [0, 1]], NOTHING), trained())
    expected = FedCMOO().descend_weights(np.diag([9.0, 1.0]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(asked[2].weights, expected, rtol=1e-6)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-6)
    np.testing.assert_allclose(state.record["weights"], expected, rtol=1e-6)
    torch.testing.assert_close(state.model, START.model + UPDATE)


@pytest.mark.parametrize(("residual", "corrected"), [(2.2, False), (2.3, True)])
def test_the_residual_counts_only_where_compression_lost_much(residual, corrected):
    # Σ‖C‖² = 1 + 4 = 5; √(5/ΣtrDᵀD) ≤ 1.5 holds from ΣtrDᵀD = 20/9 = 2.22 on, and adds (M − 1)ΣDᵀD
    D = np.array([[residual, 0.0], [0.0, 0.0]])
    G = np.array([[4.0, 0.5], [0.5, 1.0]])
    asked, _ = play(FedCMOO().conversation(START), SENT, terms(G.tolist(), D.tolist()), trained())
    expected = FedCMOO().descend_weights(G + D if corrected else G, np.array([0.5, 0.5]))
    np.testing.assert_allclose(asked[2].weights, expected, rtol=1e-6)


def test_fedcmoo_goes_on_from_the_weights_of_the_round_before():
    before = State(START.model, torch.tensor([0.9, 0.1]))
    _, state = play(FedCMOO(iterations=1).conversation(before), SENT, terms([[1.0, 0], [0, 1]], NOTHING), trained())
    # G is scaled to the identity (up to 1e-4), so one step of 1e-3 moves w₁ by −½ · 1e-3 · (0.9 − 0.1)
    np.testing.assert_allclose(state.weights, [0.8996, 0.1004], atol=1e-6)


@pytest.mark.parametrize(
    "known", [[[1.0, 3e37], [-3e37, 1.0]], [[-3e37, 0.0], [0.0, -1e30]], [[3e38, -3e38], [-3e38, 3e38]]]
)
def test_gram_terms_that_lead_to_no_weights_leave_those_of_the_round_before(known):
    before = State(START.model, torch.tensor([0.9, 0.1]))
    asked, state = play(FedCMOO().conversation(before), SENT, terms(known, NOTHING), trained())
    for w in (asked[2].weights, state.weights, state.record["weights"]):
        assert float(w.sum()) == pytest.approx(1)
        assert float(w.min()) >= 0
    assert state.record.get("weights_kept", False) == torch.equal(state.weights, before.weights)


def test_that_weights_were_kept_is_recorded_and_only_then():
    wild, sound = terms([[1.0, 3e37], [-3e37, 1.0]], NOTHING), terms([[9.0, 0], [0, 1]], NOTHING)
    assert play(FedCMOO().conversation(START), SENT, wild, trained())[1].record["weights_kept"] is True
    assert set(play(FedCMOO().conversation(START), SENT, sound, trained())[1].record) == {"weights"}


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_the_projection_is_the_nearest_point_of_the_simplex(v):
    v = np.array(v)
    p = project_to_simplex(v)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    # the nearest point is the one from which no vertex lies in the direction of v: ⟨v − p, e_i − p⟩ ≤ 0
    assert ((v - p) - (v - p) @ p).max() < 1e-9


# --- all methods ------------------------------------------------------------------------------------------

METHODS = {
    "fedhv": lambda: FedHV(reference=(3.0, 3.0), report=2, server_lr=1.1),
    "uniform": lambda: Uniform(),
    "fsmgda": lambda: FSMGDA(),
    "fedcmoo": lambda: FedCMOO(),
}


def rounds(problem, method, rounds=3, participants=3, seed=0, **local):
    local = LocalTraining(**{"steps": 3, "batch_size": 4, "learning_rate": 0.2} | local)
    return list(simulate(Sequential(problem), method, Plan(rounds, participants, local, seed=seed)))


@pytest.mark.parametrize("name", METHODS)
def test_weights_lie_on_the_simplex_in_every_round(name, random_problem):
    for round in rounds(random_problem, METHODS[name]()):
        assert min(round.weights) >= 0
        assert sum(round.weights) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_first_weights_are_uniform_where_they_precede_the_round(name):
    state = METHODS[name]().start(torch.zeros(3), 4)
    assert state.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("name", METHODS)
def test_training_lowers_the_loss(name, random_problem):
    history = rounds(random_problem, METHODS[name](), rounds=20, participants=5)
    assert history[-1].evaluation.mean_loss < history[0].evaluation.mean_loss - 0.1


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name, random_problem):
    torch.manual_seed(1)
    first = rounds(random_problem, METHODS[name](), seed=4)
    torch.manual_seed(2)
    again = rounds(everything_random(), METHODS[name](), seed=4)
    other = rounds(random_problem, METHODS[name](), seed=5)
    assert torch.equal(first[-1].state.model, again[-1].state.model)
    assert [r.weights for r in first] == [r.weights for r in again]
    assert not torch.equal(first[-1].state.model, other[-1].state.model)


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_equivariant_to_the_order_of_tasks(name):
    method = {
        "fedhv": FedHV(reference=(10.5, 4.5), server_lr=1.5),
        "fedcmoo": FedCMOO(extra_upload=4.0),
    }.get(name) or METHODS[name]()
    swapped = {"fedhv": FedHV(reference=(4.5, 10.5), server_lr=1.5)}.get(name, method)
    one = rounds(quadratic((0, 1)), method, participants=2)[-1]
    two = rounds(quadratic((1, 0)), swapped, participants=2)[-1]
    torch.testing.assert_close(one.state.model, two.state.model[[0, 1, 3, 2]])
    np.testing.assert_allclose(one.weights, two.weights[::-1], rtol=1e-5)
    if name != "uniform":
        assert abs(one.weights[0] - one.weights[1]) > 0.05


def test_fedhv_with_a_distant_reference_is_uniform(random_problem):
    far = rounds(random_problem, FedHV(reference=(1e9, 1e9)))[-1]
    uniform = rounds(random_problem, Uniform())[-1]
    torch.testing.assert_close(far.state.model, uniform.state.model, rtol=1e-4, atol=1e-6)


def test_fedhv_prefers_the_task_that_is_closer_to_its_reference(random_problem):
    (_, second) = rounds(random_problem, FedHV(reference=(2.0, 20.0)), rounds=2)
    assert second.weights[0] > 0.9


def test_a_head_moves_by_its_tasks_weight(quadratic_problem):
    # of FSMGDA's (0.1, 0.9), see the runs by hand
    (round,) = rounds(quadratic_problem, FSMGDA(), rounds=1, participants=2, steps=1, learning_rate=1.0)
    torch.testing.assert_close(round.state.model[2:], torch.tensor([0.1, -0.9]))


# --- one task ---------------------------------------------------------------------------------------------


class Single(nn.Module):
    """One task, no dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, inputs):
        return [self.layers(inputs)]


def single_task_problem():
    parts = [examples(n, seed=n) for n in (9, 16, 21)]
    clients = [(part.inputs, part.targets[:1]) for part in parts]
    return Problem.from_clients(Single, TASKS[:1], clients, test=clients[0])


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_with_one_task_fedhv_is_plain_local_sgd(momentum):
    problem, local = single_task_problem(), LocalTraining(5, 4, 0.3, momentum)
    plan = Plan(rounds=3, participants=2, local=local, seed=7)
    history = list(simulate(Sequential(problem), FedHV(reference=(9.0,), server_lr=1.3, local_lr=0.3), plan))
    assert all(round.weights == (1.0,) for round in history)

    theta = initial_model(Single, torch_seed(7, Purpose.MODEL))
    for t in range(3):
        updates = []
        cohort = sample_cohort(7, t, 3, 2, local)
        for k in cohort.clients:
            module = Single()
            nn.utils.vector_to_parameters(theta.clone(), module.parameters())
            optimiser = torch.optim.SGD(module.parameters(), lr=0.3, momentum=momentum)
            held = problem.train[torch.from_numpy(problem.clients[k])]
            for positions in minibatches(cohort.stream(Purpose.MINIBATCHES, k), len(held), local):
                optimiser.zero_grad()
                (output,) = module(held.inputs[positions])
                nn.functional.cross_entropy(output, held.targets[0][positions]).backward()
                optimiser.step()
            updates.append(nn.utils.parameters_to_vector(module.parameters()).detach() - theta)
        theta = theta + 1.3 * torch.stack(updates).mean(dim=0)
        torch.testing.assert_close(history[t].state.model, theta, rtol=1e-5, atol=1e-6)


def test_with_one_task_fedhv_uniform_and_fsmgda_are_the_same():
    ways = [FedHV(reference=(9.0,)), Uniform(), FSMGDA()]
    models = [rounds(single_task_problem(), method, participants=2)[-1].state.model for method in ways]
    for model in models[1:]:
        torch.testing.assert_close(model, models[0], rtol=1e-6, atol=1e-7)


# --- many tasks -------------------------------------------------------------------------------------------


class Many(nn.Module):
    """m numbers that know nothing of the input."""

    tasks = 12

    def __init__(self):
        super().__init__()
        self.point = nn.Parameter(torch.zeros(3))
        self.heads = nn.ModuleList(Number() for _ in range(self.tasks))

    def forward(self, inputs):
        return [head(inputs) + self.point.sum() for head in self.heads]


@pytest.mark.parametrize("name", METHODS)
def test_any_number_of_tasks_works(name):
    tasks = [regression(f"t{i}", 0.5) for i in range(Many.tasks)]
    data = (torch.zeros(4, 1), [torch.full((4, 1), 1.0 + i) for i in range(Many.tasks)])
    problem = Problem.from_clients(Many, tasks, [data, data], test=data)
    method = FedHV(reference=tuple([200.0] * Many.tasks)) if name == "fedhv" else METHODS[name]()
    history = rounds(problem, method, participants=2, learning_rate=0.01)
    assert all(len(round.weights) == Many.tasks for round in history)
    assert history[-1].evaluation.mean_loss < history[0].evaluation.mean_loss


# --- divergence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_replies_that_are_not_finite_end_the_run_as_diverged(bad):
    broken = gradients([[bad, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    for method, replies in (
        (FedHV(reference=(2.0, 2.0)), [trained([bad, 1.0])]),
        (FSMGDA(), [updated([bad, 0.0, 0, 0], [0.0, 1, 0, 0])]),
        (FedCMOO(), [broken]),
    ):
        with pytest.raises(FedHVError, match="diverged") as caught:
            play(method.conversation(START), *replies)
        assert caught.value.exit_code == 1


# --- hyper-parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "found"),
    [
        ("fedhv", {"server_lr": -1.0}, "server_lr"),
        ("uniform", {"local_lr": 0.0}, "local_lr"),
        ("fsmgda", {"local_lr": "fast"}, "local_lr"),
        ("fedcmoo", {"local_lr": float("nan")}, "local_lr"),
        ("fedhv", {"floor": 0.0}, "floor"),
        ("fedhv", {"floor": "low"}, "could not be made"),
        ("fedhv", {"report": 0}, "report"),
        ("fedhv", {"report": "some"}, "report"),
        ("uniform", {"report": True}, "report"),
        ("fedhv", {"reference": [1.0, 0.0]}, "positive and finite"),
        ("fedhv", {"reference": [1.0, -2.0]}, "positive and finite"),
        ("fedhv", {"reference": [1.0, float("inf")]}, "positive and finite"),
        ("fedhv", {"reference": []}, "positive and finite"),
        ("fedhv", {"reference": 5}, "could not be made"),
        ("fedhv", {"reference": "abc"}, "could not be made"),
        ("fedcmoo", {"extra_upload": 0.0}, "extra_upload"),
        ("fedcmoo", {"iterations": 0}, "iterations"),
        ("fedcmoo", {"iterations": 1.5}, "iterations"),
        ("fedcmoo", {"step_size": -1e-3}, "step_size"),
        ("fedhv", {"flor": 1e-6}, "Did you mean 'floor'"),
        ("fedhw", {}, "Did you mean 'fedhv'"),
        ("no.such.module:Method", {}, "could not be imported"),
        ("..relative:Method", {}, "could not be imported"),
        ("problems:Nobody", {}, "could not be imported"),
        ("problems.py:Nobody", {}, "Use 'problems:Nobody'"),
        ("problems:quadratic", {}, "subclass of fedhv.Method"),
        ("problems:Small", {}, "subclass of fedhv.Method"),
    ],
)
def test_hyper_parameters_and_names_that_make_no_sense_are_refused(name, parameters, found):
    with pytest.raises(InputError, match=found):
        make_method(name, parameters)


def test_a_methods_own_module_and_class_is_found_by_name():
    assert isinstance(make_method("fedhv.methods.uniform:Uniform", {"local_lr": 0.5}), Uniform)
