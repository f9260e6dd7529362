"""The Python API: five lines, one's own problem, and the weights alone in anybody's training loop."""

import numpy as np
import pytest
import torch
from torch import nn

import fedhv
from fedhv import Problem, classification, compare, inverse_slack_weights, multilabel, regression, run


def test_every_public_name_is_there_and_documented():
    for name in fedhv.__all__:
        assert hasattr(fedhv, name), name
        if name != "__version__":
            assert getattr(fedhv, name).__doc__, name
    assert sorted(fedhv.__all__) == sorted(set(fedhv.__all__))


def test_five_lines_do_what_the_command_line_does(tmp_path):
    fast = ["training.local_steps=1", "federation.participants=2", "calibration.rounds=1"]

    from fedhv import run

    result = run("digits", method="fedhv", seed=0, rounds=2, out=tmp_path / "run", override=fast)
    print(result.mean_accuracy, result.worst_accuracy, result.weights)
    assert 0 < result.worst_accuracy <= result.mean_accuracy < 100
    assert (tmp_path / "run" / "summary.json").exists()


# --- a problem of one's own: three kinds of task, unequal clients -----------------------------------------


class Network(nn.Module):
    """One encoder, three heads."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 16), nn.GroupNorm(2, 16), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(16, 4), nn.Linear(16, 3), nn.Linear(16, 1)])

    def forward(self, inputs):
        hidden = self.encoder(inputs)
        return [head(hidden) for head in self.heads]


TASKS = [classification("species", 4), multilabel("traits", 3), regression("age", tolerance=0.5)]


def data(n, seed):
    """NumPy arrays as they come, in double precision: inputs, and one target array for every task."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    return x, [np.abs(x[:, :4]).argmax(axis=1), (x[:, :3] > 0).astype(np.uint8), 0.5 * x[:, 3] + x[:, 4]]


@pytest.fixture
def problem():
    clients = [data(n, seed) for seed, n in enumerate((3, 17, 40, 64))]
    return Problem.from_clients(Network, TASKS, clients, test=data(100, 99), name="animals")


CHANGES = ["federation.participants=3", "training.batch_size=8", "training.local_steps=5", "calibration.rounds=3"]


@pytest.mark.parametrize("method", ["fedhv", "uniform", "fsmgda", "fedcmoo"])
def test_a_problem_of_ones_own_runs_with_every_method(method, problem, tmp_path):
    result = run(problem, method, rounds=12, out=tmp_path / method, override=CHANGES)
    assert [task.name for task in result.tasks] == ["species", "traits", "age"]
    assert len(result.weights) == 3
    assert sum(result.weights) == pytest.approx(1, abs=1e-6)
    first, last = (result.history[i]["evaluation"] for i in (0, -1))
    assert last["mean_loss"] < first["mean_loss"]
    model = Network()
    model.load_state_dict(result.state_dict)
    if method == "fedhv":
        assert result.reference.tasks == ("species", "traits", "age")
        assert result.communication.auxiliary_scalars_per_client_round == 6
        assert result.min_report_slack > 0


def test_a_problem_of_ones_own_is_resumed_and_compared(problem, tmp_path):
    alone = run(problem, "fsmgda", seed=1, rounds=2, out=tmp_path / "run", override=CHANGES)
    assert run(problem, "fsmgda", seed=1, rounds=2, out=tmp_path / "run", override=CHANGES, resume=True).tasks
    first, *_ = compare(problem, ["fsmgda", "uniform"], [1], rounds=2, out=tmp_path / "study", override=CHANGES)
    assert first.tasks == alone.tasks


def test_everybody_takes_part_where_there_are_ten_clients_or_fewer(problem):
    result = run(problem, "uniform", rounds=1)
    d = sum(p.numel() for p in Network().parameters())
    assert result.communication.downlink_bytes == 4 * 4 * d


# --- a method of one's own --------------------------------------------------------------------------------


class Softened(fedhv.FedHV):
    """FedHV halfway to uniform."""

    name = "softened"

    def round(self, state):
        after = yield from super().round(state)
        return fedhv.State(after.model, (after.weights + 1 / len(after.weights)) / 2, record=after.record)


def test_a_method_is_a_class_that_may_build_on_another(problem):
    result = run(problem, Softened(), rounds=3, override=CHANGES)
    assert result.method == "softened"
    assert min(result.weights) >= 1 / 6
    assert result.reference is not None


# --- the weights alone ------------------------------------------------------------------------------------


def test_the_weights_work_in_any_training_loop():
    torch.manual_seed(0)
    x, targets = data(200, 0)
    x, targets = torch.from_numpy(x).float(), [torch.from_numpy(t) for t in targets]
    model = Network()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    reference, hypervolumes = None, []
    for _ in range(40):
        losses = torch.stack([t.loss(o, y).mean() for t, o, y in zip(TASKS, model(x), targets, strict=True)])
        reference = losses.detach() + 0.5 if reference is None else reference
        weights = inverse_slack_weights(losses, reference)
        optimiser.zero_grad()
        (weights * losses).sum().backward()
        optimiser.step()
        hypervolumes.append(float(fedhv.log_hypervolume(losses.detach(), reference)))
    assert hypervolumes[-1] < hypervolumes[0] - 0.5
