"""The server's app: FedHV on all nodes that are there."""

from __future__ import annotations

from flwr.app import Context

from fedhv.flower import server_app
from fedhv.problem.problem import Problem
from plays.problem import METHOD, OVERRIDE, problem


def load(context: Context) -> Problem:
    return problem(int(context.run_config["nodes"]))


app = server_app(load, method=METHOD, override=[*OVERRIDE, "federation.participants=5"])
