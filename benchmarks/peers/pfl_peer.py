"""pfl-research: plain federated averaging in its simulated backend, the examples resident and channels last.

torchrun --nproc-per-node 2 pfl_peer.py WORKLOAD
python pfl_peer.py WORKLOAD cuda
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from reading import make_model, read
from torch_turns import torch_turns


class Turns(TrainingProcessCallback):
    """Waits, with all other processes, until the next round may begin."""

    def __init__(self, turns: Iterator[None]) -> None:
        self.turns = turns if os.environ.get("RANK", "0") == "0" else None

    def _wait(self) -> None:
        if self.turns is not None:
            try:
                next(self.turns)
            except StopIteration:
                os._exit(0)  # torchrun ends the others
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def on_train_begin(self, *, model):
        self._wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self._wait()
        return False, Metrics()


def main() -> None:
    path, device = [*sys.argv[1:], "cpu"][:2]
    os.environ["PFL_PYTORCH_DEVICE"] = device
    workload = read(path)
    numbers = workload.numbers
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 — it is what pfl draws from
    images = workload.normalised().contiguous(memory_format=torch.channels_last).to(device)
    labels = workload.labels.to(device)
    # The optimizer's parameters must not be moved to a device later.
    model = make_model(numbers).to(device, memory_format=torch.channels_last)

    def loss(images, labels, eval=False):
        model.train(not eval)
        outputs = model(images)
        return sum(F.cross_entropy(output, labels[:, i]) for i, output in enumerate(outputs)) / len(outputs)

    model.loss = loss
    model.metrics = lambda images, labels, eval=False: {
        "loss": Weighted(float(loss(images, labels, True).detach()) * len(images), len(images))
    }
    rng = np.random.default_rng(0)

    def user(k: int) -> Dataset:
        order = torch.from_numpy(workload.order(k, rng)).to(device)
        return Dataset((images[order], labels[order]), user_id=k)

    users = list(range(workload.clients))
    data = FederatedDataset(user, get_user_sampler("minimize_reuse", users))
    central = torch.optim.SGD(model.parameters(), lr=1.0)
    wrapped = PyTorchModel(model, lambda parameters, lr: torch.optim.SGD(parameters, lr=lr), central)
    assert pytorch_ops.get_default_device().type == device
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    turns = torch_turns(path, device, model.state_dict, ("pfl",), processes=processes)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**9,  # only the first round, which warms up
            train_cohort_size=numbers.participants,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        wrapped,
        NNTrainHyperParams(
            local_num_epochs=1, local_num_steps=None, local_learning_rate=numbers.rate, local_batch_size=numbers.batch
        ),
        callbacks=[Turns(turns)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
