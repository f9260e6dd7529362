"""The ServerApp: it runs a method and writes the run folder. Its options are in `pyproject.toml`."""

from __future__ import annotations

from flwr.app import Context

from fedhv import FedHV
from fedhv.flower import Server, server_app
from twotasks.problem import TASKS, Net, examples


def load(context: Context) -> Server:
    test = examples(site=1, count=500, part=1)  # or None: then the nodes evaluate on held-out examples
    return Server(Net, TASKS, test=test, nodes=int(context.run_config["nodes"]), name="machines")


# One loss per task that training should stay below: here slightly above the loss of an untrained model.
app = server_app(load, method=FedHV(reference=(1.0, 6.0), local_lr=0.05), override=["evaluation.every=5"])
