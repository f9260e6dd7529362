r"""Two rounds of every method, worked out on paper.

The problem (`problems.quadratic`): the model is a shared point θ = (x, y), at first (0, 0), and a number hᵢ for each
of two tasks, at first 0. Client k's loss of task i is the mean over two examples of ½‖(x, y, hᵢ) − target‖², with the
targets one step left and one step right of

    client 0   task 1: (2, 0, 1)    task 2: (0, 2, −1)
    client 1   task 1: (4, 0, 1)    task 2: (0, 0, −1)

Write c_ki for the first two numbers and b_i = ±1 for the third. The step to either side leaves the mean gradients
alone and adds ½ to every mean loss.

Both clients take part in every round, minibatches hold both examples, K = 2, η_ℓ = ½, η_g = 2, no momentum.

**Local training with weights w.** A step moves θ by −½ Σᵢ wᵢ(θ − c_ki) = −½(θ − c̄_k), c̄_k = Σᵢ wᵢc_ki, because the
weights sum to one: it halves the distance to c̄_k. Two steps leave a quarter of it, so

    Δθ_k = ¾(c̄_k − θ),   and on the server   θ ← θ + 2 · ¾ · (mean_k c̄_k − θ) = θ + 1.5(c̄ − θ).

A step moves hᵢ by −½wᵢ(hᵢ − bᵢ), so hᵢ ← hᵢ + 2(1 − (1 − wᵢ/2)²)(bᵢ − hᵢ) on the server.

The mean targets of the tasks over clients are (3, 0) and (0, 1), so that c̄ = (3w₁, w₂).

**Uniform.** w = (½, ½), c̄ = (1.5, 0.5), 2(1 − (3/4)²) = 7/8.
    round 1:  θ = 1.5 · (1.5, 0.5) = (2.25, 0.75),  h = (7/8, −7/8)
    round 2:  θ = (2.25, 0.75) + 1.5(−0.75, −0.25) = (1.125, 0.375),  h = 7/8 + 7/8 · 1/8 = 63/64, and −63/64

**FedHV**, r = (10.5, 3.5), ρ_clip = ½.
    Round 1 trains with w⁰ = (½, ½), as Uniform. Reports at θ⁰ = 0, h⁰ = 0:
        task 1: ½·(2² + 1) + ½ = 3 and ½·(4² + 1) + ½ = 9, mean 6;  task 2: 3 and ½·(0 + 1) + ½ = 1, mean 2
        slacks 4.5 and 1.5, inverses 2/9 and 6/9:  w¹ = (1/4, 3/4)
    Round 2 trains with w¹: c̄ = (3/4, 3/4),
        θ = (2.25, 0.75) + 1.5(−1.5, 0) = (0, 0.75)
        h₁ = 7/8 + 2(1 − (7/8)²) · 1/8 = 7/8 + 15/256 = 239/256
        h₂ = −7/8 + 2(1 − (5/8)²) · (−1/8) = −7/8 − 39/256 = −263/256
    Reports at θ¹ = (2.25, 0.75), |hᵢ − bᵢ| = 1/8, so that every loss has 1/128 + ½ beside ½‖θ − c‖²:
        task 1: ½(1/16 + 9/16) = 5/16 and ½(49/16 + 9/16) = 29/16, mean 17/16 + 1/128 + 1/2 = 201/128
        task 2: ½(81/16 + 25/16) = 53/16 and ½(81/16 + 9/16) = 45/16, mean 49/16 + 1/128 + 1/2 = 457/128
        slacks 10.5 − 201/128 = 1143/128 and 3.5 − 457/128 = −9/128, below ½ = 64/128:
        w² = (64, 1143)/1207, one floor activation

**FSMGDA.** Task i alone: the update is ¾(mean target − θ) on the shared point, ¾(bᵢ − hᵢ) on its head.
    Round 1: ¾(3, 0) and ¾(0, 1) are orthogonal with squared norms 9 : 1, so λ = (1/10, 9/10).
        θ = 2(λ₁ · ¾(3, 0) + λ₂ · ¾(0, 1)) = 1.5(0.3, 0.9) = (0.45, 1.35)
        h₁ = 2 · 1/10 · ¾ = 0.15,  h₂ = −2 · 9/10 · ¾ = −1.35
    (With the heads in the geometry it would be 10 : 2 and λ = (1/6, 5/6).)
    Round 2: ¾(2.55, −1.35) and ¾(−0.45, −0.35): ‖·‖² ∝ 8.325 and 0.325, product −0.675,
        λ₁ = (0.325 + 0.675)/(8.325 + 0.325 + 1.35) = 1/10 again: the nearest point of the segment is still (0.3, 0.9)
        θ = (0.45, 1.35) + 1.5(−0.15, −0.45) = (0.225, 0.675)
        h₁ = 0.15 + 2 · 1/10 · ¾ · 0.85 = 0.2775,  h₂ = −1.35 + 2 · 9/10 · ¾ · 0.35 = −0.8775

**FedCMOO.** The shared gradients of a client are the 2 × 2 matrix A_k with columns θ − c_ki. With extra_upload = 4 the
rank is ⌊4 · 2/(2√4)⌋ = 2: the compression loses nothing, C_k = A_k, D_k = 0, S = Σ A_k, and the Gram estimate
ΣAᵀA + ΣAᵀ(S − A) is SᵀS, that of the summed gradients S = 2(θ − (3, 0), θ − (0, 1)).
    The weights: with G̃ = G/s, s = (mean of √(Gᵢᵢ + 10⁻⁴))², a projected step of size σ = 10⁻³ from (p, 1 − p) is
        p ← p − σ/2 · ((G̃w)₁ − (G̃w)₂) = p − σ/2 · (pq + g̃₁₂ − g̃₂₂),  q = g̃₁₁ − 2g̃₁₂ + g̃₂₂,
    so after n of them p = p* + (1 − σq/2)ⁿ(p₀ − p*) with the min-norm weight p* = (g̃₂₂ − g̃₁₂)/q.
    Round 1: G = diag(36, 4), s = ((6.000008 + 2.000025)/2)² = 16.000133, q = 2.499979, p* = 1/10,
        p = 0.1 + 0.4 · (1 − 0.00124999)¹⁰⁰⁰ = 0.1 + 0.4 · 0.286283 = 0.214514
    Stage 2 takes its first step with the gradients at hand, which here are those of the first minibatch: so the model
    moves as above with w = (p, 1 − p):  θ = 1.5(3p, 1 − p) = (0.965311, 1.178230), h = (0.406019, −1.262478).
    Round 2: S = 2(θ − (3, 0), θ − (0, 1)), G = (22.112739, −7.016448; ·, 3.854364), s = 11.107916, q = 3.601036,
        p* = 0.271770, p = p* + (1 − 0.001800518)¹⁰⁰⁰(0.214514 − p*) = 0.271770 − 0.164945 · 0.057257 = 0.262326
        θ = (0.697812, 0.517396),  h = (0.697215, −0.946647)
"""

import numpy as np
import pytest
import torch

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.engines import Sequential
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.requests import GramTermReplies, TaskGradientReplies
from fedhv.simulation.rounds import Plan, simulate

RATES = {"server_lr": 2.0, "local_lr": 0.5}
PLAN = Plan(rounds=2, participants=2, local=LocalTraining(steps=2, batch_size=2, learning_rate=0.5))


@pytest.fixture
def play(quadratic_problem):
    """Two rounds of a method."""

    def two_rounds(method):
        return list(simulate(Sequential(quadratic_problem), method, PLAN))

    return two_rounds


def assert_round(round, *, model, weights):
    """The model after the round, and the weights that it used."""
    np.testing.assert_allclose(round.state.model.numpy(), model, rtol=1e-6)
    np.testing.assert_allclose(round.weights, weights, rtol=1e-6)


def test_uniform(play):
    first, second = play(Uniform(**RATES))
    assert_round(first, model=[2.25, 0.75, 7 / 8, -7 / 8], weights=[1 / 2, 1 / 2])
    assert_round(second, model=[1.125, 0.375, 63 / 64, -63 / 64], weights=[1 / 2, 1 / 2])


def test_fedhv(play):
    first, second = play(FedHV(reference=(10.5, 3.5), floor=0.5, **RATES))

    assert_round(first, model=[2.25, 0.75, 7 / 8, -7 / 8], weights=[1 / 2, 1 / 2])
    assert first.state.record["report"] == pytest.approx([6, 2])
    assert first.state.record["slack"] == pytest.approx([4.5, 1.5])
    assert first.state.record["floored"] == 0
    np.testing.assert_allclose(first.state.weights, [1 / 4, 3 / 4], rtol=1e-6)

    assert_round(second, model=[0, 0.75, 239 / 256, -263 / 256], weights=[1 / 4, 3 / 4])
    assert second.state.record["report"] == pytest.approx([201 / 128, 457 / 128])
    assert second.state.record["slack"] == pytest.approx([1143 / 128, -9 / 128])
    assert second.state.record["floored"] == 1
    np.testing.assert_allclose(second.state.weights, [64 / 1207, 1143 / 1207], rtol=1e-6)


def test_fsmgda(play):
    first, second = play(FSMGDA(**RATES))
    assert_round(first, model=[0.45, 1.35, 0.15, -1.35], weights=[1 / 10, 9 / 10])
    assert_round(second, model=[0.225, 0.675, 0.2775, -0.8775], weights=[1 / 10, 9 / 10])


def weight_after(steps, gram, p):
    """The first weight after projected steps, in closed form (see above)."""
    g = gram / np.mean(np.sqrt(np.diag(gram) + 1e-4)) ** 2
    q = g[0, 0] - 2 * g[0, 1] + g[1, 1]
    best = (g[1, 1] - g[0, 1]) / q
    return best + (1 - 1e-3 * q / 2) ** steps * (p - best)


def moved(model, p):
    """The model after one round with weights (p, 1 − p) (see above)."""
    w, b = np.array([p, 1 - p]), np.array([1.0, -1.0])
    point, heads = np.array(model[:2]), np.array(model[2:])
    return [*(point + 1.5 * ([3 * p, 1 - p] - point)), *(heads + 2 * (1 - (1 - w / 2) ** 2) * (b - heads))]


def test_fedcmoo(play):
    first, second = play(FedCMOO(extra_upload=4.0, **RATES))

    p = weight_after(1000, np.diag([36.0, 4.0]), 0.5)
    model = moved([0, 0, 0, 0], p)
    assert p == pytest.approx(0.214514, abs=1e-6)
    assert model == pytest.approx([0.965311, 1.178230, 0.406019, -1.262478], abs=1e-6)
    assert_round(first, model=model, weights=[p, 1 - p])

    S = 2 * np.stack([np.array(model[:2]) - [3, 0], np.array(model[:2]) - [0, 1]], axis=1)
    p = weight_after(1000, S.T @ S, p)
    model = moved(model, p)
    assert p == pytest.approx(0.262326, abs=1e-6)
    assert model == pytest.approx([0.697812, 0.517396, 0.697215, -0.946647], abs=1e-6)
    assert_round(second, model=model, weights=[p, 1 - p])


def test_fedcmoo_takes_a_thousand_projected_steps_from_the_previous_weights():
    # the same loop, written out: the projection of (a, b) on the segment is ((1 + a − b)/2, (1 − a + b)/2), clipped
    gram, w = np.array([[5.0, -1.0], [-1.0, 2.0]]), np.array([0.9, 0.1])
    scaled = gram / ((np.sqrt(5.0001) + np.sqrt(2.0001)) / 2) ** 2
    for _ in range(1000):
        a, b = w - 1e-3 * (scaled @ w)
        p = np.clip((1 + a - b) / 2, 0, 1)
        w = np.array([p, 1 - p])
    found = FedCMOO().descend_weights(gram, np.array([0.9, 0.1]))
    np.testing.assert_allclose(found, w, rtol=1e-12)
    assert found[0] == pytest.approx(weight_after(1000, gram, 0.9), rel=1e-9)


def test_the_runs_do_not_depend_on_the_seed_where_nothing_is_random(quadratic_problem):
    for method in (Uniform(**RATES), FedHV(reference=(10.5, 3.5), **RATES), FSMGDA(**RATES)):
        models = []
        for seed in (0, 7):
            plan = Plan(2, 2, PLAN.local, seed=seed)
            *_, last = simulate(Sequential(quadratic_problem), method, plan)
            models.append(last.state.model)
        torch.testing.assert_close(*models)


def test_the_evaluation_is_that_of_the_model_after_the_round(play):
    # the test examples are client 0's: at θ = (1.125, 0.375), h = ±63/64 (Uniform, round 2) the losses are
    # ½(0.875² + 0.375²) + ½/64² + ½ and ½(1.125² + 1.625²) + ½/64² + ½
    *_, last = play(Uniform(**RATES))
    losses = [task.loss for task in last.evaluation.tasks]
    head = 0.5 / 64**2
    expected = [0.5 * (0.875**2 + 0.375**2) + head + 0.5, 0.5 * (1.125**2 + 1.625**2) + head + 0.5]
    assert losses == pytest.approx(expected, rel=1e-6)
    # of the examples at (1, 0, 1), (3, 0, 1), (−1, 2, −1), (1, 2, −1) only the first is within one step
    assert [task.accuracy for task in last.evaluation.tasks] == [50.0, 0.0]


def test_fedcmoo_counts_the_clients_whose_terms_it_has(quadratic_problem):
    """Three sent gradients and one was lost since: ΣDᵀD is a sum over two, so it weighs (2 − 1)."""
    engine = Sequential(quadratic_problem)
    local = PLAN.local
    three, two = (Cohort(range(n), 0, 0, local) for n in (3, 2))
    eye = torch.eye(2)
    # two small ones, and the one that is gone: it would outweigh any residual
    sent = {"left": torch.tensor([0.0, 0.0, 1e3]).view(3, 1, 1).expand(3, 2, 1), "right": torch.ones(3, 1, 2)}
    conversation = FedCMOO().round(FedCMOO().start(torch.zeros(engine.layout.d), 2))
    next(conversation)
    conversation.send(TaskGradientReplies(three, engine.layout, stacks=sent))
    known, residual = torch.diag(torch.tensor([4.0, 1.0])), 9 * eye
    train = conversation.send(GramTermReplies(two, engine.layout, known.double(), residual.double()))
    expected = weight_after(1000, np.diag([13.0, 10.0]), 0.5)
    assert train.weights[0].item() == pytest.approx(expected, rel=1e-5)
