"""Federated multi-task learning with PyTorch: one shared model for several tasks, and the rules that weigh them."""

from typing import TYPE_CHECKING

from fedhv._version import __version__

if TYPE_CHECKING:
    from fedhv.interface import calibrate, compare, front, run, tune
    from fedhv.methods import FSMGDA, SCAFFOLD, FedCMOO, FedHV, FedProx, Method, State, Uniform
    from fedhv.methods.parts.watch import ReferenceBreached
    from fedhv.methods.weights import inverse_slack_sum, inverse_slack_weights, log_hypervolume, slacks
    from fedhv.problem.metrics import Metric
    from fedhv.problem.padding import padded
    from fedhv.problem.partition import partition
    from fedhv.problem.problem import Benchmark, Clients, Examples, Problem
    from fedhv.problem.tasks import Task, classification, multilabel, regression
    from fedhv.protocol.evaluation import Evaluation, TaskScore
    from fedhv.protocol.local import LocalTraining
    from fedhv.protocol.request import Replies, Reply, Request
    from fedhv.protocol.requests import ContinueTraining, GramTerms, TaskGradients, TaskUpdates, Train
    from fedhv.protocol.screening import TooFewReplies
    from fedhv.report.compared import Study
    from fedhv.report.front import Front
    from fedhv.runs.config import Setting, load_setting
    from fedhv.runs.determinism import NotDeterministic
    from fedhv.runs.evaluate import evaluate
    from fedhv.runs.export import Exported, export
    from fedhv.runs.halving import Tuned
    from fedhv.runs.model import load_model
    from fedhv.runs.record import Run, read_run
    from fedhv.runs.reference import Reference
    from fedhv.runs.study import StudyFailed
    from fedhv.runs.summary import Summary
    from fedhv.simulation.observer import Observer
    from fedhv.simulation.record import Round
    from fedhv.support.errors import Diverged, EarlyStop, FedHVError, InputError, Interrupted
else:  # imported at first use: PyTorch takes seconds, and some commands do not need it
    from fedhv.support.lazy import exports

    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.interface": ["calibrate", "compare", "front", "run", "tune"],
            "fedhv.methods": ["FSMGDA", "SCAFFOLD", "FedCMOO", "FedHV", "FedProx", "Method", "State", "Uniform"],
            "fedhv.methods.parts.watch": ["ReferenceBreached"],
            "fedhv.methods.weights": ["inverse_slack_sum", "inverse_slack_weights", "log_hypervolume", "slacks"],
            "fedhv.problem.metrics": ["Metric"],
            "fedhv.problem.padding": ["padded"],
            "fedhv.problem.partition": ["partition"],
            "fedhv.problem.problem": ["Benchmark", "Clients", "Examples", "Problem"],
            "fedhv.problem.tasks": ["Task", "classification", "multilabel", "regression"],
            "fedhv.protocol.evaluation": ["Evaluation", "TaskScore"],
            "fedhv.protocol.local": ["LocalTraining"],
            "fedhv.protocol.request": ["Replies", "Reply", "Request"],
            "fedhv.protocol.requests": ["ContinueTraining", "GramTerms", "TaskGradients", "TaskUpdates", "Train"],
            "fedhv.protocol.screening": ["TooFewReplies"],
            "fedhv.report.compared": ["Study"],
            "fedhv.report.front": ["Front"],
            "fedhv.runs.config": ["Setting", "load_setting"],
            "fedhv.runs.determinism": ["NotDeterministic"],
            "fedhv.runs.evaluate": ["evaluate"],
            "fedhv.runs.export": ["Exported", "export"],
            "fedhv.runs.model": ["load_model"],
            "fedhv.runs.halving": ["Tuned"],
            "fedhv.runs.record": ["Run", "read_run"],
            "fedhv.runs.reference": ["Reference"],
            "fedhv.runs.study": ["StudyFailed"],
            "fedhv.runs.summary": ["Summary"],
            "fedhv.simulation.observer": ["Observer"],
            "fedhv.simulation.record": ["Round"],
            "fedhv.support.errors": ["Diverged", "EarlyStop", "FedHVError", "InputError", "Interrupted"],
        },
    )

__all__ = [
    "FSMGDA",
    "SCAFFOLD",
    "Benchmark",
    "Clients",
    "ContinueTraining",
    "Diverged",
    "EarlyStop",
    "Evaluation",
    "Examples",
    "Exported",
    "FedCMOO",
    "FedHV",
    "FedHVError",
    "FedProx",
    "Front",
    "GramTerms",
    "InputError",
    "Interrupted",
    "LocalTraining",
    "Method",
    "Metric",
    "NotDeterministic",
    "Observer",
    "Problem",
    "Reference",
    "ReferenceBreached",
    "Replies",
    "Reply",
    "Request",
    "Round",
    "Run",
    "Setting",
    "State",
    "Study",
    "StudyFailed",
    "Summary",
    "Task",
    "TaskGradients",
    "TaskScore",
    "TaskUpdates",
    "TooFewReplies",
    "Train",
    "Tuned",
    "Uniform",
    "__version__",
    "calibrate",
    "classification",
    "compare",
    "evaluate",
    "export",
    "front",
    "inverse_slack_sum",
    "inverse_slack_weights",
    "load_model",
    "load_setting",
    "log_hypervolume",
    "multilabel",
    "padded",
    "partition",
    "read_run",
    "regression",
    "run",
    "slacks",
    "tune",
]
