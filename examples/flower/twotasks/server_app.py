"""What runs on the server: a ServerApp that runs a method and keeps the run; its options are in `pyproject.toml`."""

from __future__ import annotations

from flwr.app import Context

from fedhv import FedHV
from fedhv.flower import Server, server_app
from twotasks.problem import TASKS, Net, examples


def load(context: Context) -> Server:
    test = examples(site=1, count=500, part=1)  # or None: then the nodes evaluate on examples that they hold out
    return Server(Net, TASKS, test=test, nodes=int(context.run_config["nodes"]), name="machines")


# A loss that each task should stay below: here a little above an untrained model's.
app = server_app(load, method=FedHV(reference=(1.0, 6.0), local_lr=0.05), override=["evaluation.every=5"])
