"""What one client does: report, train, take gradients; and which models and losses it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import TASKS, Noise, Small, examples, quadratic
from torch import nn

from fedhv import (
    ContinueTraining,
    GramTerms,
    InputError,
    LocalTraining,
    Problem,
    Task,
    TaskGradients,
    TaskUpdates,
    Train,
    classification,
)
from fedhv.benchmarks.augment import Rotate
from fedhv.problem.initial import initial_model
from fedhv.problem.parameters import flatten
from fedhv.problem.random import Purpose
from fedhv.protocol.client import Client, draw_minibatches
from fedhv.protocol.cohort import Cohort, minibatches, report_positions
from fedhv.protocol.compression import Compressed
from fedhv.protocol.exchange import Call


def problem(model=Small, tasks=TASKS, sizes=(7, 30), **options):
    train = examples(sum(sizes), seed=1)
    ends = np.cumsum(sizes)
    parts = [train[int(end) - size : int(end)] for size, end in zip(sizes, ends, strict=True)]
    test = examples(20, seed=2)
    clients = [(part.inputs, part.targets) for part in parts]
    return Problem.from_clients(model, tasks, clients, (test.inputs, test.targets), **options)


class Plain(Small):
    """Without dropout: the same outputs in training and in evaluation."""

    def __init__(self):
        super().__init__()
        self.encoder = self.encoder[:2]


def cohort(**local):
    return Cohort([0, 1], round=3, seed=5, local=LocalTraining(**{"steps": 4, "batch_size": 8} | local))


def loaded(model, theta):
    """A module with the parameters θ, to compute with in the ordinary way."""
    module = model()
    with torch.no_grad():
        start = 0
        for p in module.parameters():
            p.copy_(theta[start : start + p.numel()].view(p.shape))
            start += p.numel()
    return module


def losses_of(module, batch):
    outputs = module(batch.inputs)
    return torch.stack([task.loss(o, t).mean() for task, o, t in zip(TASKS, outputs, batch.targets, strict=True)])


def held(p, k):
    return p.train[torch.from_numpy(p.clients[k])]


THETA = initial_model(Small, 0)


# --- gradients and minibatches ----------------------------------------------------------------------------


class Unused(Plain):
    """A layer that no forward pass uses, and one that both heads use."""

    def __init__(self):
        super().__init__()
        self.idle = nn.Linear(3, 2)
        self.again = self.heads[0]


@pytest.mark.parametrize("model", [Plain, Unused])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_is_that_of_ordinary_parameters(model, dtype):
    p = problem(model)
    client, theta, weights = Client(p), initial_model(model, 0).to(dtype), torch.tensor([0.3, 0.7], dtype=dtype)
    batch = client.batch(np.arange(6), 1)
    batch = batch.with_inputs(batch.inputs.to(dtype))
    module = loaded(model, theta).to(dtype)
    (losses_of(module, batch) @ weights).backward()
    alone = [torch.zeros_like(q) if q.grad is None else q.grad for q in module.parameters()]
    expected = torch.cat([each.flatten() for each in alone])
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    first = client.gradient(theta, batch, weights)
    torch.testing.assert_close(first, expected, rtol=tolerance, atol=tolerance)
    client.gradient(theta + 1, batch, weights)  # the parameters are set in place, and a result is no part of them
    torch.testing.assert_close(first, expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(client.gradient(theta, batch, weights), first)


@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("shape", [(8,), (5,), (1, 8, 8)])
@pytest.mark.parametrize("at_once", [1, 300, 2**18])
def test_minibatches_prepared_together_are_those_prepared_one_by_one(monkeypatch, size, shape, at_once):
    monkeypatch.setattr("fedhv.protocol.client.TOGETHER", at_once)
    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((40, *shape), dtype=np.float32), rng.integers(0, 2, 40)
    tasks = [classification("one", 2), classification("two", 2, missing=-1)]
    targets = [labels, np.where(rng.random(40) < 0.3, -1, labels)]
    turn = Rotate(30.0, mirror=0.5) if len(shape) == 3 else None
    p = Problem.from_clients(
        lambda: nn.Linear(1, 1), tasks, [(inputs, targets)], (inputs, targets), prepare=lambda x: x / 3, augment=turn
    )
    client, chosen = Client(p), cohort(batch_size=size, steps=6)
    positions, draws = draw_minibatches(p, chosen, 0)
    found = list(client.minibatches(chosen, 0))
    assert len(found) == 6
    for i, batch in enumerate(found):
        alone = client.batch(positions[i], 0, None if draws is None else draws[i])
        assert torch.equal(batch.inputs, alone.inputs)
        assert batch.inputs.stride() == alone.inputs.stride()
        assert batch.inputs.data_ptr() % 64 == 0
        assert all(map(torch.equal, batch.targets, alone.targets))
        assert torch.equal(batch.labelled[1], alone.labelled[1])


# --- reports ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1])
def test_a_full_report_is_the_mean_loss_of_every_task_over_the_clients_examples(k):
    p = problem()
    report = Client(p).answer(Call(Train(THETA, report="all"), cohort()), k).report
    module = loaded(Small, THETA).eval()
    torch.testing.assert_close(report, losses_of(module, held(p, k)).detach())


@pytest.mark.parametrize("budget", [1, 2, 3, 100])
def test_a_report_with_a_budget_is_the_mean_over_its_subset(budget):
    p, c = problem(), cohort()
    report = Client(p).answer(Call(Train(THETA, report=budget), c), 1).report
    positions = report_positions(c.stream(Purpose.REPORT, 1), 30, c.local, budget)
    assert len(positions) == min(8 * budget, 30)
    module = loaded(Small, THETA).eval()
    torch.testing.assert_close(report, losses_of(module, held(p, 1)[positions]).detach())


def test_a_report_is_taken_at_the_received_model_before_local_training():
    p = problem()
    for rate in (1e-3, 10.0):
        reply = Client(p).answer(Call(Train(THETA, report="all"), cohort(learning_rate=rate)), 1)
        assert reply.update.abs().max() > 0
        torch.testing.assert_close(reply.report, losses_of(loaded(Small, THETA).eval(), held(p, 1)).detach())


def test_a_report_sees_clean_examples_without_dropout():
    clean = Client(problem()).answer(Call(Train(THETA, report="all"), cohort()), 1).report
    noisy = Client(problem(augment=Noise())).answer(Call(Train(THETA, report="all"), cohort()), 1).report
    assert torch.equal(clean, noisy)


def test_a_report_leaves_local_training_as_it_is():
    client = Client(problem(augment=Noise()))
    without = client.answer(Call(Train(THETA), cohort()), 1)
    with_it = client.answer(Call(Train(THETA, report=1), cohort()), 1)
    assert without.report is None
    assert torch.equal(without.update, with_it.update)


def test_reports_of_more_examples_than_one_pass_holds_are_exact():
    p = problem(sizes=(3, 1100))
    report = Client(p).answer(Call(Train(THETA, report="all"), cohort()), 1).report
    torch.testing.assert_close(report, losses_of(loaded(Small, THETA).eval(), held(p, 1)).detach())


# --- local training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("sampling", ["epochs", "replacement"])
@pytest.mark.parametrize("k", [0, 1])
def test_local_training_is_torchs_sgd_on_the_weighted_loss(momentum, sampling, k):
    p, c = problem(Plain), cohort(steps=9, learning_rate=0.3, momentum=momentum, sampling=sampling)
    weights = torch.tensor([0.2, 0.8])
    update = Client(p).answer(Call(Train(THETA, weights), c), k).update

    module = loaded(Plain, THETA)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3, momentum=momentum)
    for positions in minibatches(c.stream(Purpose.MINIBATCHES, k), len(p.clients[k]), c.local):
        optimiser.zero_grad()
        (weights * losses_of(module, held(p, k)[positions])).sum().backward()
        optimiser.step()
    after = torch.cat([parameter.detach().ravel() for parameter in module.parameters()])
    torch.testing.assert_close(update, after - THETA, rtol=1e-4, atol=1e-6)


def test_no_weights_are_uniform_weights():
    client = Client(problem())
    plain = client.answer(Call(Train(THETA), cohort()), 1).update
    uniform = client.answer(Call(Train(THETA, torch.tensor([0.5, 0.5])), cohort()), 1).update
    assert torch.equal(plain, uniform)


def test_a_task_without_weight_leaves_its_head_alone():
    client = Client(problem())
    update = client.layout.unflatten(client.answer(Call(Train(THETA, torch.tensor([1.0, 0.0])), cohort()), 1).update)
    assert update["heads.0.weight"].abs().max() > 0
    assert update["heads.1.weight"].abs().max() == 0


def test_training_uses_dropout_and_augmentation():
    def update(**options):
        return Client(problem(**options)).answer(Call(Train(THETA), cohort()), 1).update

    assert not torch.equal(update(), update(model=Plain))
    assert not torch.equal(update(), update(augment=Noise()))


def test_no_gradient_flows_into_the_weights_and_no_graph_travels():
    weights = torch.tensor([0.3, 0.7], requires_grad=True)
    reply = Client(problem()).answer(Call(Train(THETA, weights, report=1), cohort()), 1)
    assert not reply.update.requires_grad
    assert not reply.report.requires_grad
    assert weights.grad is None


def test_a_client_changes_neither_the_model_it_received_nor_the_global_random_state():
    theta, state = THETA.clone(), torch.random.get_rng_state()
    client = Client(problem(augment=Noise()))
    client.answer(Call(Train(theta, report=1), cohort()), 1)
    client.answer(Call(TaskUpdates(theta), cohort()), 1)
    client.answer(Call(TaskGradients(theta), cohort()), 1)
    assert torch.equal(theta, THETA)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_answer_depends_on_seed_round_and_client_alone():
    client = Client(problem(augment=Noise()))
    torch.manual_seed(1)
    first = client.answer(Call(Train(THETA, report=1), cohort()), 1)
    torch.manual_seed(2)
    client.answer(Call(Train(THETA), cohort()), 0)
    again = Client(problem(augment=Noise())).answer(Call(Train(THETA, report=1), cohort()), 1)
    assert torch.equal(first.update, again.update)
    assert torch.equal(first.report, again.report)
    for other in (Cohort([1], 4, 5, cohort().local), Cohort([1], 3, 6, cohort().local)):
        assert not torch.equal(first.update, client.answer(Call(Train(THETA), other), 1).update)


# --- task updates and task gradients ----------------------------------------------------------------------


def test_task_updates_are_local_training_on_each_task_alone():
    # where nothing is random: the quadratic problem, on whose paper ¾ of the way to the target is gone in two steps
    client = Client(quadratic())
    local = {"steps": 2, "batch_size": 2, "learning_rate": 0.5}
    updates = client.answer(Call(TaskUpdates(torch.zeros(4)), cohort(**local)), 0).updates
    torch.testing.assert_close(updates, 0.75 * torch.tensor([[2.0, 0, 1, 0], [0, 2, 0, -1]]))


class Twice(Plain):
    """Two tasks that are one and the same."""

    def forward(self, inputs):
        first, _ = super().forward(inputs)
        return [first, first]


@pytest.fixture
def twice():
    task, part = TASKS[0], examples(30, seed=1)
    tasks = (task, Task("again", task.loss, task.score, task.check))
    data = (part.inputs, [part.targets[0], part.targets[0]])
    return Client(Problem.from_clients(Twice, tasks, [data], data)), Cohort([0], 0, 0, LocalTraining(4, 8))


def test_the_tasks_of_task_updates_train_on_minibatches_of_their_own(twice):
    client, c = twice
    updates = client.answer(Call(TaskUpdates(THETA), c), 0).updates
    assert not torch.equal(updates[0], updates[1])


def test_every_task_gradient_is_of_a_minibatch_of_its_own(twice):
    client, c = twice
    call = Call(TaskGradients(THETA), c)
    client.answer(call, 0)
    kept = call.memories[0].round["gradients"]
    assert not torch.equal(kept[0], kept[1])


def test_task_gradients_are_those_of_one_minibatch_and_only_the_shared_part_is_sent():
    p, c = problem(Plain, sizes=(8, 6)), cohort()  # one minibatch is all that a client has
    client = Client(p)
    call = Call(TaskGradients(THETA, 1000.0), c)
    compressed = client.answer(call, 1).compressed(client.layout)
    kept = call.memories[1].round["gradients"]
    module = loaded(Plain, THETA)
    for i, loss in enumerate(losses_of(module, held(p, 1))):
        gradients = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True, allow_unused=True)
        flat = [torch.zeros_like(q) if g is None else g for g, q in zip(gradients, module.parameters(), strict=True)]
        torch.testing.assert_close(kept[i], torch.cat([g.ravel() for g in flat]), rtol=1e-4, atol=1e-6)
    shared = client.layout.shared(kept).T
    assert compressed.shape == (client.layout.d_shared, 2)
    torch.testing.assert_close(compressed.dense(), shared, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_first_step_applies_the_gradients_at_hand_and_the_others_follow(steps):
    p, c = problem(Plain), cohort(steps=steps, learning_rate=0.3, momentum=0.5)
    client = Client(p)
    call = Call(TaskGradients(THETA), c)
    for k in c.clients:
        client.answer(call, k)
    w = torch.tensor([0.25, 0.75])
    update = client.answer(replace(call, request=ContinueTraining(THETA, w)), 1).update

    velocity = w @ call.memories[1].round["gradients"]
    theta = THETA - 0.3 * velocity
    for positions in minibatches(c.stream(Purpose.MINIBATCHES, 1), 30, c.local, max(steps - 1, 1))[: steps - 1]:
        module = loaded(Plain, theta)
        (w * losses_of(module, held(p, 1)[positions])).sum().backward()
        velocity = 0.5 * velocity + torch.cat([q.grad.ravel() for q in module.parameters()])
        theta = theta - 0.3 * velocity
    torch.testing.assert_close(update, theta - THETA, rtol=1e-4, atol=1e-6)


def test_gram_terms_are_those_of_the_paper():
    # A = (2 0; 0 1), its compression C = (2 0; 0 0), D = (0 0; 0 1), and S = (5 1; 2 3): S − C = (3 1; 2 3),
    # AᵀA = diag(4, 1), Cᵀ(S − C) = (6 2; 0 0), 2Dᵀ(S − C) = (0 0; 4 6), DᵀD = diag(0, 1)
    client = Client(quadratic())
    full = torch.tensor([[2.0, 0, 9, 0], [0, 1, 0, 9]])  # one row per task; the last two entries are the heads

    call = Call(GramTerms.of(Compressed(torch.tensor([[5.0, 1], [2, 3]]), torch.eye(2), (2, 2)), 1.0), cohort())
    kept = {"gradients": full, "left": torch.tensor([[2.0, 0], [0, 0]]), "right": torch.eye(2)}
    call.memories[0].round.update(kept)
    terms = client.answer(call, 0)
    torch.testing.assert_close(terms.known, torch.tensor([[10.0, 2.0], [4.0, 7.0]]))
    torch.testing.assert_close(terms.residual, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.BatchNorm1d(8, track_running_stats=False),
                                   nn.SyncBatchNorm(8), nn.InstanceNorm1d(8, track_running_stats=True)])  # fmt: skip
def test_batch_norm_is_refused_with_the_reason_and_the_remedy(layer):
    class Normalised(Small):
        def __init__(self):
            super().__init__()
            self.encoder.insert(1, layer)

    with pytest.raises(InputError, match=r"at 'encoder.1'.*averaging.*GroupNorm"):
        Client(problem(Normalised))


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 8), nn.LayerNorm(8)])
def test_norms_without_running_statistics_are_fine(layer):
    class Normalised(Small):
        def __init__(self):
            super().__init__()
            self.encoder.insert(1, layer)

    theta = initial_model(Normalised, 0)
    assert Client(problem(Normalised)).answer(Call(Train(theta), cohort()), 1).update.isfinite().all()


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_model_with_another_number_of_outputs_than_tasks_is_refused(outputs):
    class Wrong(Small):
        def forward(self, inputs):
            return (super().forward(inputs) * 2)[:outputs]

    with pytest.raises(InputError, match=f"list of 2 outputs, one per task. Found {outputs}"):
        Client(problem(Wrong)).answer(Call(Train(THETA), cohort()), 1)


def test_a_single_tensor_is_the_output_of_a_single_task():
    class One(Small):
        def forward(self, inputs):
            return super().forward(inputs)[0]

    part = examples(30, 1)
    p = Problem.from_clients(
        One, TASKS[:1], [(part.inputs, part.targets[:1])], (part.inputs, part.targets[:1]), heads=("heads.0",)
    )
    assert Client(p).answer(Call(Train(THETA, report="all"), Cohort([0], 0, 0, LocalTraining())), 0).report.shape == (
        1,
    )


@pytest.mark.parametrize("loss", [nn.functional.cross_entropy, lambda o, t: nn.functional.cross_entropy(o, t)[None]])
def test_a_loss_that_averages_by_itself_is_refused_with_the_remedy(loss):
    tasks = (Task("colour", loss, TASKS[0].score), TASKS[1])
    with pytest.raises(InputError, match=r"'colour' should return one number per example.*reduction='none'"):
        Client(problem(tasks=tasks)).answer(Call(Train(THETA, report="all"), cohort()), 1)


def test_what_is_no_module_or_has_no_parameters_is_refused():
    with pytest.raises(InputError, match="torch module"):
        Client(problem(lambda: 3))
    with pytest.raises(InputError, match="parameters to train"):
        Client(problem(nn.Identity))


def test_heads_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="one prefix per task"):
        Client(problem(heads=("heads.0",)))
    with pytest.raises(InputError, match=r"The head 'heads.2' of the model should have parameters"):
        Client(problem(heads=("heads.0", "heads.2")))


# --- shared parameters and heads --------------------------------------------------------------------------


def test_heads_are_told_from_shared_parameters():
    layout = Client(problem()).layout
    assert layout.d == 6 * 8 + 8 + 8 * 3 + 3 + 8 * 4 + 4
    assert layout.d_shared == 6 * 8 + 8
    assert [layout.d_head(i) for i in range(2)] == [27, 36]


def test_heads_may_be_named_and_without_any_everything_is_shared():
    assert Client(problem(heads=("heads.1", "heads.0"))).layout.d_head(0) == 36

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 7)

        def forward(self, inputs):
            return self.layer(inputs).split([3, 4], dim=1)

    layout = Client(problem(Bare)).layout
    assert layout.d_shared == layout.d == 49


def test_the_flat_vector_is_the_modules_parameters_in_order():
    client = Client(problem())
    assert torch.equal(flatten(loaded(Small, THETA)), THETA)
    named = client.layout.unflatten(THETA)
    assert all(torch.equal(named[name], value) for name, value in loaded(Small, THETA).named_parameters())


def test_the_initial_model_is_a_function_of_its_seed_alone():
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    assert torch.equal(initial_model(Small, 0), THETA)
    assert not torch.equal(initial_model(Small, 1), THETA)
    assert torch.equal(torch.random.get_rng_state(), state)
