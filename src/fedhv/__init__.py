"""FedHV: task-wise federated multi-objective optimisation with m numbers a client."""

from typing import TYPE_CHECKING

from fedhv._version import __version__

if TYPE_CHECKING:
    from fedhv.methods import FSMGDA, SCAFFOLD, FedCMOO, FedHV, FedProx, Method, State, Uniform
    from fedhv.methods.weights import inverse_slack_sum, inverse_slack_weights, log_hypervolume, slacks
    from fedhv.problem.padding import padded
    from fedhv.problem.partition import partition
    from fedhv.problem.problem import Benchmark, Clients, Examples, Problem
    from fedhv.problem.tasks import Task, classification, multilabel, regression
    from fedhv.protocol.local import LocalTraining
    from fedhv.protocol.request import Replies, Reply, Request
    from fedhv.protocol.requests import ContinueTraining, GramTerms, TaskGradients, TaskUpdates, Train
    from fedhv.runs.calibration import calibrate
    from fedhv.runs.config import Setting, load_setting
    from fedhv.runs.folder import Result
    from fedhv.runs.reference import Reference
    from fedhv.runs.run import run
    from fedhv.runs.study import compare
    from fedhv.support.errors import FedHVError, InputError
else:  # imported at their first use: PyTorch takes seconds, and some commands need none of it
    from fedhv.support.lazy import exports

    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.methods": ["FSMGDA", "SCAFFOLD", "FedCMOO", "FedHV", "FedProx", "Method", "State", "Uniform"],
            "fedhv.methods.weights": ["inverse_slack_sum", "inverse_slack_weights", "log_hypervolume", "slacks"],
            "fedhv.problem.padding": ["padded"],
            "fedhv.problem.partition": ["partition"],
            "fedhv.problem.problem": ["Benchmark", "Clients", "Examples", "Problem"],
            "fedhv.problem.tasks": ["Task", "classification", "multilabel", "regression"],
            "fedhv.protocol.local": ["LocalTraining"],
            "fedhv.protocol.request": ["Replies", "Reply", "Request"],
            "fedhv.protocol.requests": ["ContinueTraining", "GramTerms", "TaskGradients", "TaskUpdates", "Train"],
            "fedhv.runs.calibration": ["calibrate"],
            "fedhv.runs.config": ["Setting", "load_setting"],
            "fedhv.runs.folder": ["Result"],
            "fedhv.runs.reference": ["Reference"],
            "fedhv.runs.run": ["run"],
            "fedhv.runs.study": ["compare"],
            "fedhv.support.errors": ["FedHVError", "InputError"],
        },
    )

__all__ = [
    "FSMGDA",
    "SCAFFOLD",
    "Benchmark",
    "Clients",
    "ContinueTraining",
    "Examples",
    "FedCMOO",
    "FedHV",
    "FedHVError",
    "FedProx",
    "GramTerms",
    "InputError",
    "LocalTraining",
    "Method",
    "Problem",
    "Reference",
    "Replies",
    "Reply",
    "Request",
    "Result",
    "Setting",
    "State",
    "Task",
    "TaskGradients",
    "TaskUpdates",
    "Train",
    "Uniform",
    "__version__",
    "calibrate",
    "classification",
    "compare",
    "inverse_slack_sum",
    "inverse_slack_weights",
    "load_setting",
    "log_hypervolume",
    "multilabel",
    "padded",
    "partition",
    "regression",
    "run",
    "slacks",
]
