"""The ClientApp of `fedhv flower up`; the run configuration's keys are those of `up_server`.

It is apart from the ServerApp because a process of it starts for every message, and should import little.
"""

from __future__ import annotations

from flwr.app import Context

from fedhv.flower import run_config
from fedhv.flower.client import client_app
from fedhv.methods import method_class
from fedhv.problem.problem import Problem
from fedhv.runs.resolve import resolve


def load(context: Context) -> Problem:
    """The setting's problem; the node takes its own part of it."""
    settings = context.run_config
    method_class(str(settings["method"]))  # its module may define a request
    return resolve(str(settings["setting"]), data=run_config.text(settings, "data"))[1]


client = client_app(load, reports=lambda context: run_config.reports(context.run_config))
