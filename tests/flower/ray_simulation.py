"""Run by test_ray.py in a process of its own: the embedded setting in Flower's simulation, four clients on Ray."""

from __future__ import annotations

import sys
from pathlib import Path

from fedhv.flower import client_app
from fedhv.methods import FedHV
from fedhv.runs.config import load_setting
from fedhv.runs.resolve import resolve

SMALL = [
    "federation.clients=4",
    "federation.participants=3",
    "federation.samples_per_client=60",
    "training.local_steps=3",
    "training.rounds=2",
    "evaluation.every=0",
]
METHOD = FedHV(server_lr=1.2, local_lr=0.3, reference=(2.6, 2.7))


def load(context):
    return resolve(load_setting("digits", SMALL))[1]


if __name__ == "__main__":
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation  # Flower's databases and web server: seconds, and only needed here

    from fedhv.flower.server import serve

    server = ServerApp()

    @server.main()
    def main(grid, context):
        serve(grid, load_setting("digits", SMALL), METHOD, out=Path(sys.argv[1]))

    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 2, "include_dashboard": False},
    }
    run_simulation(server, client_app(load, device="cpu"), num_supernodes=4, backend_config=resources)
