"""Flower's simulation on Ray: plain federated averaging.

python flower_peer.py WORKLOAD tuned|tutorial

Tuned, model and examples stay in the actors, channels last; the other is what Flower's first tutorial does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from flower_client import client
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from messages import turns
from reading import make_model, read


class Turns(FedAvg):
    """Waits until the next round may begin."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.turns = turns()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable:
        try:
            next(self.turns)
        except StopIteration:
            os._exit(0)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):
        replies = list(replies)
        if any(reply.has_error() for reply in replies):
            os._exit(1)  # a round that failed must not look like a fast one
        return super().aggregate_train(server_round, replies)


def server(path: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        workload = read(path)
        m = workload.numbers.participants
        strategy = Turns(fraction_train=m / workload.clients, min_train_nodes=m, fraction_evaluate=0.0,
                         min_available_nodes=workload.clients)  # fmt: skip
        model = make_model(workload.numbers)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=10**6, timeout=600)

    return app


if __name__ == "__main__":
    path, style = os.path.abspath(sys.argv[1]), sys.argv[2]
    cores = os.cpu_count() or 1
    run_simulation(
        server_app=server(path),
        client_app=client(path, style),
        num_supernodes=read(path).clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
