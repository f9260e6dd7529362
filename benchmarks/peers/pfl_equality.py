"""Five rounds of FedAvg, FedProx, FedAvgM, FedAdagrad and FedAdam, here and in pfl-research, on the same minibatches.

    pip install pfl
    python benchmarks/peers/pfl_equality.py

Clients have different numbers of examples and are weighted by them. pfl-research trains and averages as it does for its
users (`SimulatedBackend`, `FederatedAveraging`, `FedProx`, a central `torch.optim`); the program only gives it the
examples of every client in the order in which ours draws them. Prints the largest difference of any parameter after
every round, and fails above 1e-5.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx as PflFedProx
from pfl.algorithm.fedprox import FedProxParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from fedhv import FedProx, LocalTraining, Problem, Uniform, classification
from fedhv.engines import Sequential
from fedhv.methods.base import Method
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import Cohort, minibatches
from fedhv.simulation.rounds import Plan, initial_state, simulate

SIZES = (6, 12, 18, 24, 30)
ROUNDS, BATCH, RATE, MU, SEED = 5, 6, 0.2, 0.7, 2
LOCAL = LocalTraining(batch_size=BATCH, learning_rate=RATE, epochs=1)
LARGEST = 1e-5


class Net(nn.Module):
    """A perceptron with two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 4)])

    def forward(self, inputs: Tensor) -> list[Tensor]:
        features = self.encoder(inputs)
        return [head(features) for head in self.heads]

    def loss(self, inputs: Tensor, first: Tensor, second: Tensor, eval: bool = False) -> Tensor:
        """The mean of the two tasks' losses, under the name that pfl-research calls."""
        a, b = self(inputs)
        return (F.cross_entropy(a, first) + F.cross_entropy(b, second)) / 2

    def metrics(self, *batch: Tensor, eval: bool = False) -> dict[str, Weighted]:
        """The metrics that pfl-research requires."""
        return {"loss": Weighted(float(self.loss(*batch).detach()), 1)}


def problem() -> Problem:
    """Clients of different sizes whose inputs lie in different places."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for k, n in enumerate(SIZES):
        inputs = torch.randn(n, 6, generator=generator) + 0.2 * k
        targets = [torch.randint(classes, (n,), generator=generator) for classes in (3, 4)]
        clients.append((inputs, targets))
    return Problem.from_clients(Net, [classification("a", 3), classification("b", 4)], clients, clients[0])


class Rounds(TrainingProcessCallback):
    """Counts rounds, and keeps the model after each."""

    def __init__(self) -> None:
        self.number = 0
        self.models: list[dict[str, Tensor]] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.number += 1
        self.models.append({n: v.detach().clone() for n, v in model.pytorch_model.state_dict().items()})
        return False, Metrics()


def theirs(whole: Problem, start: dict[str, Tensor], central: Callable, mu: float) -> list[dict[str, Tensor]]:
    """The models of pfl-research after every round."""
    rounds, net = Rounds(), Net()
    net.load_state_dict(start)

    def user(k: int) -> Dataset:
        cohort = Cohort([k], rounds.number, SEED, LOCAL)
        order = minibatches(cohort.stream(Purpose.MINIBATCHES, k), SIZES[k], LOCAL).ravel()
        mine = whole.train[torch.from_numpy(whole.clients[k][order])]
        return Dataset((mine.inputs, *mine.targets), user_id=k)

    data = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(len(SIZES)))))
    common = {
        "central_num_iterations": ROUNDS,
        "evaluation_frequency": 10**9,
        "train_cohort_size": len(SIZES),
        "val_cohort_size": None,
    }
    algorithm = PflFedProx() if mu else FederatedAveraging()
    algorithm.run(
        FedProxParams(**common, mu=mu) if mu else NNAlgorithmParams(**common),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(net, lambda parameters, lr: torch.optim.SGD(parameters, lr=lr), central(net.parameters())),
        NNTrainHyperParams(local_num_epochs=1, local_num_steps=None, local_learning_rate=RATE, local_batch_size=BATCH),
        callbacks=[rounds],
        send_metrics_to_platform=False,
    )
    return rounds.models


CASES: dict[str, tuple[Method, ServerOptimiser, Callable, float]] = {
    "FedAvg": (Uniform(local_lr=RATE), ServerOptimiser(), lambda p: torch.optim.SGD(p, lr=1.0), 0.0),
    "FedProx": (FedProx(mu=MU, local_lr=RATE), ServerOptimiser(), lambda p: torch.optim.SGD(p, lr=1.0), MU),
    "FedAvgM": (
        Uniform(local_lr=RATE),
        ServerOptimiser("momentum", 0.5, 0.8),
        lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.8),
        0.0,
    ),
    "FedAdagrad": (
        Uniform(local_lr=RATE),
        ServerOptimiser("adagrad", 0.05, betas=(0.0, 0.99), tau=1e-2),
        lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-2),
        0.0,
    ),
    "FedAdam": (
        Uniform(local_lr=RATE),
        ServerOptimiser("adam", 0.05, betas=(0.9, 0.99), tau=1e-2, correct_bias="both"),
        lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99), eps=1e-2),
        0.0,
    ),
}


def main() -> int:
    """Compare; the exit status is 1 if a method disagrees."""
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002  # it is what pfl draws from
    whole, worst = problem(), 0.0
    print(f"{len(SIZES)} clients of {', '.join(map(str, SIZES))} examples, b = {BATCH}, one epoch, {ROUNDS} rounds")
    print(f"{'':12}{'moved by':>10}   largest difference after rounds 1 … {ROUNDS}")
    for name, (method, optimiser, central, mu) in CASES.items():
        plan = Plan(ROUNDS, len(SIZES), LOCAL, server=optimiser, average="examples", seed=SEED)
        with Sequential(whole) as engine:
            start = initial_state(engine, method, SEED).model
            ours = [round.state.model for round in simulate(engine, method, plan)]
            network = engine.client.network
        found = theirs(whole, network.state_dict(start), central, mu)
        pairs = [(network.state_dict(model), other) for model, other in zip(ours, found, strict=True)]
        gaps = [max(float((a[n] - b[n]).abs().max()) for n in a) for a, b in pairs]
        worst = max(worst, *gaps)
        print(f"{name:12}{float((ours[-1] - start).norm()):10.3f}   {'  '.join(f'{gap:.1e}' for gap in gaps)}")
    print(f"largest difference {worst:.1e}, allowed {LARGEST:.0e}")
    return int(not worst <= LARGEST)


if __name__ == "__main__":
    sys.exit(main())
