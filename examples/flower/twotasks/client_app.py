"""The ClientApp of every node: a function that returns its model, its tasks and its own data."""

from __future__ import annotations

from flwr.app import Context

from fedhv.flower import Node, client_app
from twotasks.problem import TASKS, Net, examples


def load(context: Context) -> Node:
    site = context.node_config["partition-id"]
    return Node(Net, TASKS, examples(site, count=200 + 100 * site))


app = client_app(load)
