r"""Rounds with missing labels, worked out on paper.

The problem (`gaps.half_labelled`) is that of `test_methods_by_hand`, with labels missing: of the left task client 0 has
only the label of its second example, and of the right task client 1 has none.

    client 0   left: (3, 0, 1), one of two examples    right: (0, 2, −1), one step to either side
    client 1   left: (4, 0, 1), one step to either side    right: nothing

Everything else is as there: K = 2, η_ℓ = ½, η_g = 2, minibatches hold both examples.

**Local training with weights w.** Client 0's minibatch has one label of the left task where one is expected: its mean
over two examples with a zero, times n_k/n_ki = 2, is the gradient w₁(θ − (3, 0)). So client 0 halves the distance to
c̄ = w₁(3, 0) + w₂(0, 2) in every step, Δθ₀ = ¾(c̄ − θ). Client 1 steps by −½w₁(θ − (4, 0)) alone:
Δθ₁ = (1 − (1 − w₁/2)²)((4, 0) − θ). On the server θ ← θ + Δθ₀ + Δθ₁.

Heads are averaged over those who trained them: h₁ over both clients, h₂ is client 0's. Each moves by
2(1 − (1 − wᵢ/2)²)(bᵢ − hᵢ), as with complete labels.

**Uniform.** c̄ = (1.5, 1), 1 − (¾)² = 7/16.
    round 1:  θ = ¾(1.5, 1) + 7/16 · (4, 0) = (2.875, 0.75),  h = (7/8, −7/8)
    round 2:  θ + ¾(−1.375, 0.25) + 7/16 · (1.125, −0.75) = (2.3359375, 0.609375),  h = (63/64, −63/64)

**FedHV**, r = (10, 4).
    Reports at θ⁰ = 0: left ½(9 + 1) = 5 and 9, mean 7; right 3, from client 0 alone.
    Slacks 3 and 1: w¹ = (¼, ¾).
    Round 2: c̄ = (0.75, 1.5), 1 − (7/8)² = 15/64:
        θ = (2.875, 0.75) + ¾(−2.125, 0.75) + 15/64 · (1.125, −0.75) = (1.544921875, 1.13671875)
        h = (239/256, −263/256), as with complete labels
    Reports at θ¹: left ½(1/64 + 36/64 + 1/64) = 19/64 and ½(81/64 + 36/64) + ½ + 1/128 = 91/64, mean 55/64;
        right ½(2.875² + 1.25²) + ½ + 1/128 = 5.421875

**FSMGDA.** Task updates ¾((3.5, 0) − θ), the mean of two, and ¾((0, 2) − θ), client 0's: orthogonal with squared
norms 49 : 16, so λ = (16, 49)/65,  θ = 1.5(3.5 · 16, 2 · 49)/65,  h = 1.5(16, −49)/65.
"""

import numpy as np
import pytest
import torch
from gaps import half_labelled

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.engines import Sequential
from fedhv.methods.base import drive
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.memories import no_memories
from fedhv.simulation.rounds import Plan, simulate

RATES = {"server_lr": 2.0, "local_lr": 0.5}
LOCAL = LocalTraining(steps=2, batch_size=2, learning_rate=0.5)


def two_rounds(method):
    return list(simulate(Sequential(half_labelled()), method, Plan(2, 2, LOCAL)))


def assert_round(round, *, model, weights):
    np.testing.assert_allclose(round.state.model.numpy(), model, rtol=1e-6)
    np.testing.assert_allclose(round.weights, weights, rtol=1e-6)


def test_uniform():
    first, second = two_rounds(Uniform(report="all", **RATES))
    assert_round(first, model=[2.875, 0.75, 7 / 8, -7 / 8], weights=[1 / 2, 1 / 2])
    assert_round(second, model=[2.3359375, 0.609375, 63 / 64, -63 / 64], weights=[1 / 2, 1 / 2])
    assert first.state.record == {"report": pytest.approx([7, 3])}


def test_fedhv():
    first, second = two_rounds(FedHV(reference=(10.0, 4.0), floor=0.5, **RATES))
    assert_round(first, model=[2.875, 0.75, 7 / 8, -7 / 8], weights=[1 / 2, 1 / 2])
    assert first.state.record["report"] == pytest.approx([7, 3])
    assert first.state.record["slack"] == pytest.approx([3, 1])
    assert_round(second, model=[1.544921875, 1.13671875, 239 / 256, -263 / 256], weights=[1 / 4, 3 / 4])
    assert second.state.record["report"] == pytest.approx([55 / 64, 5.421875])
    assert "absent" not in second.state.record


def test_fsmgda():
    first, _ = two_rounds(FSMGDA(**RATES))
    theta, h = np.array([56, 98]) * 1.5 / 65, np.array([16, -49]) * 1.5 / 65
    assert_round(first, model=[*theta, *h], weights=[16 / 65, 49 / 65])
    assert "absent" not in first.state.record


def test_fedcmoo_weighs_the_mean_gradients_over_the_clients_that_have_a_task():
    """Gradients (−3.5, 0), the mean of two, and (0, −2), client 0's: times M = 2 the Gram matrix is diag(49, 16)."""
    first, _ = two_rounds(FedCMOO(extra_upload=4.0, **RATES))
    expected = FedCMOO().descend_weights(np.diag([49.0, 16.0]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(first.weights, expected, rtol=1e-5)


# --- a cohort without a task --------------------------------------------------------------------------------


def play(method, clients, state=None, round=0):
    """One round with client 1 alone, say, who knows nothing of the right task."""
    engine = Sequential(half_labelled())
    state = method.start(torch.zeros(engine.layout.d), 2) if state is None else state
    cohort, memories = Cohort(clients, round, 0, LOCAL), no_memories()
    return drive(method.conversation(state), lambda request: engine.ask(Call(request, cohort, memories=memories)))


@pytest.mark.parametrize("aggregate", ["mean", "median", "trimmed"])
@pytest.mark.parametrize(
    "make", [lambda **k: Uniform(report="all", **k), lambda **k: FedHV(reference=(10.0, 4.0), **k)]
)
def test_a_task_that_nobody_of_the_cohort_has_keeps_its_last_report(make, aggregate):
    method = make(aggregate=aggregate, **RATES)
    first = play(method, [0, 1])
    assert first.record["report"] == pytest.approx([7, 3])
    assert "absent" not in first.record
    second = play(method, [1], first)
    assert second.record["report"][1] == first.record["report"][1] == pytest.approx(3)
    assert second.record["absent"] == [1]
    assert second.model[3] == first.model[3], "the head of an absent task has moved"
    third = play(method, [1], second)
    assert third.record["report"][1] == pytest.approx(3)
    assert third.record["absent"] == [1]


def test_before_its_first_report_a_task_counts_as_the_others_do():
    after = play(FedHV(reference=(10.0, 10.0), **RATES), [1])
    assert after.record["report"] == pytest.approx([9, 9])
    assert after.record["absent"] == [1]
    assert after.weights.tolist() == pytest.approx([0.5, 0.5])


def test_fsmgda_and_fedcmoo_leave_a_task_that_nobody_has_out_of_the_round():
    for method in (FSMGDA(**RATES), FedCMOO(extra_upload=4.0, **RATES)):
        after = play(method, [1])
        assert after.record["weights"].tolist() == [1.0, 0.0]
        assert after.record["absent"] == [1]
        # client 1's update for the left task alone: ¾(4, 0), ¾ on its head; twice that on the server
        assert after.model.tolist() == pytest.approx([6.0, 0.0, 1.5, 0.0])
    assert after.weights.tolist() == [0.5, 0.5], "FedCMOO goes on from the weights before"
