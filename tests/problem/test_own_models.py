"""Models as people write them: shared layers, frozen layers, random buffers, negative losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from observers import Watch
from safetensors.torch import load_file
from torch import nn

from fedhv import FedHV, InputError, Method, Problem, State, Task, Uniform, classification, run
from fedhv.engines.mappable import why_not_mappable
from fedhv.engines.trial_run import check_model
from fedhv.problem.initial import initial_model
from fedhv.problem.network import Network
from fedhv.protocol.compression import inner_products
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.protocol.requests import TaskGradients, Train
from fedhv.simulation.divergence import check_explosion
from fedhv.support.errors import Diverged, Interrupted

TASKS = [classification("one", 3), classification("two", 3)]


def examples(n: int, seed: int):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)).astype(np.float32)
    return x, [x[:, :3].argmax(1), x[:, 3:].argmax(1)]


def problem(model, tasks=TASKS) -> Problem:
    return Problem.from_clients(model, tasks, [examples(n, n) for n in (20, 7, 33, 11)], examples(40, 99))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        return [head(hidden) for head in self.heads]


class Tied(Net):
    """The same layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.body

    def forward(self, inputs):
        return super().forward(self.again(inputs))


class Frozen(Net):
    """Random features that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, inputs):
        return super().forward(self.features(inputs).tanh())


class Projected(Net):
    """A random buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("projection", torch.randn(6, 6))

    def forward(self, inputs):
        return super().forward(inputs @ self.projection)


OPTIONS = {"rounds": 4, "override": ["federation.participants=3", "training.local_steps=2"]}


def test_the_saved_model_has_the_trained_values_under_every_name(tmp_path):
    result = run(problem(Tied), Uniform(), out=tmp_path / "r", engine="sequential", **OPTIONS)
    saved = load_file(tmp_path / "r" / "model.safetensors")
    assert torch.equal(saved["again.weight"], saved["body.weight"])
    model = Tied()
    model.load_state_dict(saved)
    inputs, targets = problem(Tied).test.inputs, problem(Tied).test.targets
    with torch.no_grad():
        right = [(out.argmax(1) == target).float().mean() for out, target in zip(model(inputs), targets, strict=True)]
    assert [task["accuracy"] for task in result.history[-1]["evaluation"]["tasks"]] == pytest.approx(
        [100 * float(r) for r in right]
    )


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
def test_what_is_frozen_stays_and_is_not_sent(engine):
    world = problem(Frozen)
    result = run(world, Uniform(local_lr=0.5), engine=engine, **OPTIONS)
    trained = sum(parameter.numel() for parameter in Net().parameters())
    assert result.history[0]["uplink_bytes"] == 3 * 4 * trained
    made = Network(Frozen, 2, None, "cpu").module
    assert torch.equal(result.state_dict["features.weight"], made.features.weight)
    assert not torch.equal(result.state_dict["body.weight"], made.body.weight)
    Frozen().load_state_dict(result.state_dict)


def test_engines_agree_on_a_model_with_frozen_layers_and_random_buffers():
    class Both(Projected):
        def __init__(self) -> None:
            super().__init__()
            self.body.requires_grad_(False)

    models = [run(problem(Both), Uniform(), engine=e, **OPTIONS) for e in ("sequential", "parallel", "stacked")]
    for name, value in models[0].state_dict.items():
        assert torch.equal(models[1].state_dict[name], value)
        torch.testing.assert_close(models[2].state_dict[name], value)


def test_a_model_with_nothing_to_train_is_refused():
    class Nothing(Net):
        def __init__(self) -> None:
            super().__init__()
            self.requires_grad_(False)

    with pytest.raises(InputError, match="parameters to train"):
        run(problem(Nothing), Uniform(), **OPTIONS)


def test_a_random_buffer_is_the_same_in_every_run_and_after_an_interruption(tmp_path):
    world, same = problem(Projected), {"engine": "sequential", **OPTIONS}
    torch.manual_seed(1)
    whole = run(world, Uniform(), out=tmp_path / "whole", **same)
    torch.manual_seed(2)
    with pytest.raises(Interrupted):
        run(world, Uniform(), out=tmp_path / "parts", observer=Watch(after=2), **same)
    torch.manual_seed(3)
    parts = run(world, Uniform(), out=tmp_path / "parts", resume=True, **same)
    assert all(torch.equal(parts.state_dict[name], value) for name, value in whole.state_dict.items())


def test_making_a_network_leaves_the_random_state_alone_and_initial_models_follow_their_seed():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    Network(Projected, 2, None, "cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(initial_model(Projected, 1), initial_model(Projected, 1))
    assert not torch.equal(initial_model(Projected, 1), initial_model(Projected, 2))


def test_losses_that_are_negative_are_no_explosion():
    def shifted(outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none") - 10

    tasks = [Task(name, shifted, TASKS[0].score) for name in ("one", "two")]
    assert len(run(problem(Net, tasks), Uniform(), engine="sequential", **OPTIONS).rounds) == 4


@pytest.mark.parametrize(("first", "fine", "exploded"), [(0.0, 900.0, 1000.0), (-2.0, 1990.0, 2000.0)])
def test_what_counts_as_an_explosion_of_a_loss_that_is_not_positive(first, fine, exploded):
    def of(loss):
        return Evaluation.of([TaskScore("one", 50.0, loss)])

    assert check_explosion(of(first), None, 1000.0, 1) == first
    assert check_explosion(of(fine), first, 1000.0, 2) == first
    with pytest.raises(Diverged, match="more than 1000 times"):
        check_explosion(of(exploded), first, 1000.0, 3)


@dataclass(frozen=True, kw_only=True)
class Twice(Method):
    """Asks for task gradients at two models and keeps both answers."""

    name = "twice"

    def round(self, state):
        here = yield TaskGradients(state.model)
        there = yield TaskGradients(0.5 * state.model)
        pairs = zip(here.compressed, there.compressed, strict=True)
        apart = [float((a.dense() - b.dense()).norm()) for a, b in pairs]
        replies = yield Train(state.model)
        return State(state.model + replies.mean_update, state.weights, record={"apart": apart})


def test_an_answer_stays_what_it_was_when_the_clients_are_asked_again():
    ones = [run(problem(Net), Twice(), engine=e, **OPTIONS) for e in ("sequential", "parallel")]
    assert min(ones[0].history[0]["apart"]) > 0
    assert ones[1].history[0]["apart"] == ones[0].history[0]["apart"]


def test_numpys_numbers_are_numbers(tmp_path):
    method = FedHV(local_lr=np.float32(0.05), server_lr=np.float64(1.0), report=np.int64(1), reference=(9.0, 9.0))
    assert type(method.local_lr) is float
    run(problem(Net), method, seed=np.int64(3), out=tmp_path / "r", engine="sequential", **OPTIONS)
    again = run(problem(Net), method, seed=3, out=tmp_path / "r", engine="sequential", resume=True, **OPTIONS)
    assert len(again.rounds) == 4


@pytest.mark.parametrize("seed", [1.5, "1", None, True, -1, np.float64(2)])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(InputError, match="whole number from 0"):
        run(problem(Net), Uniform(), seed=seed, **OPTIONS)


@pytest.mark.parametrize(
    ("change", "name"),
    [("clients=3", "clients"), ("samples_per_client=5", "samples_per_client"), ("alpha=0.1", "alpha")],
)
def test_a_change_of_clients_that_are_given_is_refused(change, name):
    with pytest.raises(InputError, match=rf"has its clients already: `federation\.{name}`"):
        run(problem(Net), Uniform(), override=["federation.participants=2", f"federation.{change}"])


def test_clients_of_different_shapes_are_refused_by_their_number():
    x, targets = examples(5, 0)
    with pytest.raises(InputError, match=r"inputs of shape \(5,\) with client 1, \(6,\) with client 0"):
        Problem.from_clients(Net, TASKS, [(x, targets), (x[:, :5], targets)], (x, targets))
    with pytest.raises(InputError, match=r"one entry for every example\. Found the number 3"):
        Problem.from_clients(Net, TASKS, [(3, targets)], (x, targets))


# --- what no run of could be repeated, or does not fit, is found before a run starts ----------------------


class Counting(Net):
    """A buffer that every forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        return super().forward(inputs / (1 + self.calls))


class Spectral(Net):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))


class AlwaysDropping(Net):
    def forward(self, inputs):
        return super().forward(torch.nn.functional.dropout(inputs, 0.3))


class Named(Net):
    def forward(self, inputs):
        return dict(zip(("one", "two"), super().forward(inputs), strict=True))


class Lazy(Net):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LazyLinear(6)


class Complex(Net):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Parameter(torch.ones(6, dtype=torch.cfloat))


class Untrainable(Net):
    @torch.no_grad()
    def forward(self, inputs):
        return super().forward(inputs)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Counting, r"buffer 'calls' should not change"),
        (Spectral, r"buffer 'body\.parametrizations\.weight\.0\._u' should not change"),
        (AlwaysDropping, r"draws in evaluation mode"),
        (Named, r"should return a list of outputs, one per task\. Found dict"),
        (Lazy, r"'body\.weight' should have a shape\. Found a lazy layer"),
        (Complex, r"'spectrum' should be real\. Found torch.complex64"),
        (Untrainable, r"should have a gradient at the model's parameters"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_anything_is_written(model, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(problem(model), Uniform(), out=tmp_path / "r", **OPTIONS)
    assert not (tmp_path / "r").exists()


class Words(nn.Module):
    """Embeddings whose gradients are sparse."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words, self.bags = nn.Embedding(9, 6, sparse=sparse), nn.EmbeddingBag(9, 6, mode="sum", sparse=sparse)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, inputs):
        found = (3 * inputs).abs().long().clamp(max=8)
        hidden = self.words(found).mean(dim=1) + self.bags(found)
        return [head(hidden) for head in self.heads]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, of the stack that is tried
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_sparse_gradients_are_the_dense_ones(engine):
    sparse, dense = (
        run(problem(lambda kind=kind: Words(kind)), Uniform(local_lr=0.5), engine=engine, **OPTIONS).state_dict
        for kind in (True, False)
    )
    for name, value in dense.items():
        torch.testing.assert_close(sparse[name], value)


def test_a_buffer_that_holds_nan_and_stays_is_fine():
    class Masked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([torch.nan, 1.0]))

    assert len(run(problem(Masked), Uniform(), engine="sequential", **OPTIONS).rounds) == 4


def test_a_trial_run_leaves_no_trace_in_the_random_state():
    class Dropping(Net):
        def forward(self, inputs):
            return super().forward(torch.nn.functional.dropout(inputs, 0.3, self.training))

    torch.manual_seed(3)
    before = torch.get_rng_state()
    check_model(problem(Dropping))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loss_of_another_precision_is_refused_in_one_line():
    def doubled(outputs, targets):
        return torch.nn.functional.cross_entropy(outputs.double(), targets, reduction="none")

    tasks = [Task(name, doubled, TASKS[0].score) for name in ("one", "two")]
    with pytest.raises(InputError, match="in float32"):
        run(problem(Net, tasks), Uniform(), **OPTIONS)


class Centred(Net):
    """An example's outputs depend on the others beside it."""

    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(dim=0))


class CentredInTraining(Net):
    """The same, in training alone: in a stack, what pads a minibatch would count."""

    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(dim=0) if self.training else inputs)


@pytest.mark.parametrize("model", [Centred, CentredInTraining])
def test_a_model_whose_examples_mix_is_not_stacked(model):
    assert why_not_mappable(problem(model)) == "its examples depend on one another within a minibatch"
    assert why_not_mappable(problem(Net)) is None
    here, there = (run(problem(model), Uniform(), engine=e, **OPTIONS) for e in ("sequential", "stacked"))
    assert all(torch.equal(there.state_dict[name], value) for name, value in here.state_dict.items())


class FrozenHead(Net):
    def __init__(self) -> None:
        super().__init__()
        self.heads[1].requires_grad_(False)


class OneHead(Net):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(6, 3)] * 2)


@pytest.mark.parametrize("model", [FrozenHead, OneHead])
@pytest.mark.parametrize("method", ["fsmgda", "fedcmoo"])
def test_heads_that_are_frozen_or_shared_leave_all_parameters_shared(model, method):
    result = run(problem(model), method, engine="sequential", **OPTIONS)
    assert len(result.rounds) == 4
    layout = Network(model, 2, None, "cpu").layout
    assert layout.d_shared == layout.d


class Wide(nn.Module):
    """All parameters are shared: there is no list of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 3)

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        return [self.left(hidden), self.right(hidden)]


def test_products_do_not_depend_on_where_the_gradients_lie():
    """A row of a board begins anywhere; FedCMOO's inner products are of a copy that begins where copies do."""
    layout = Network(Wide, 2, None, "cpu").layout
    for row in torch.randn(3, 2, layout.d):
        mine, theirs = (layout.shared(each).T for each in (row, row.clone()))
        assert mine.data_ptr() != row.data_ptr()
        assert mine.data_ptr() % 64 == theirs.data_ptr() % 64 == 0
        assert torch.equal(inner_products(mine, mine), inner_products(theirs, theirs))


@dataclass(frozen=True, kw_only=True)
class NoWeights(Method):
    name = "no-weights"

    def round(self, state):
        replies = yield Train(state.model)
        return State(state.model + replies.mean_update, state.weights * torch.nan)


def test_a_method_whose_weights_are_not_finite_says_so_and_keeps_nothing_of_it(tmp_path):
    with pytest.raises(Diverged, match="After round 1 the task weights are no longer finite"):
        run(problem(Net), NoWeights(), out=tmp_path / "r", engine="sequential", **OPTIONS)
    assert not (tmp_path / "r" / "checkpoint.safetensors").exists()


class Squeezed(Net):
    """Loses the axis of examples where there is one."""

    def forward(self, x):
        return [output.squeeze() for output in super().forward(x)]


def test_a_model_that_fails_for_a_client_of_one_example_is_refused_before_the_run(tmp_path):
    parts = [examples(n, n) for n in (9, 1)]
    alone = Problem.from_clients(Squeezed, TASKS, parts, examples(40, 99))
    with pytest.raises(InputError, match=r"^The loss of task 'one' should return one number per example \(1\)\."):
        run(alone, "uniform", rounds=1, participants=1, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    check_model(Problem.from_clients(Squeezed, TASKS, parts[:1], examples(40, 99)))
