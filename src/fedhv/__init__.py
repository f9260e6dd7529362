"""FedHV: task-wise federated multi-objective optimisation with m numbers a client."""

from fedhv._version import __version__
from fedhv.methods import FSMGDA, FedCMOO, FedHV, Method, State, Uniform
from fedhv.methods.weights import inverse_slack_sum, inverse_slack_weights, log_hypervolume, slacks
from fedhv.problem.padding import padded
from fedhv.problem.partition import partition
from fedhv.problem.problem import Benchmark, Clients, Examples, Problem
from fedhv.problem.tasks import Task, classification, multilabel, regression
from fedhv.protocol.cohort import LocalTraining
from fedhv.protocol.messages import GramTerms, TaskGradients, TaskUpdates, Train
from fedhv.runs.calibration import calibrate
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.folder import Result
from fedhv.runs.reference import Reference
from fedhv.runs.run import run
from fedhv.runs.study import compare
from fedhv.support.errors import FedHVError, InputError

__all__ = [
    "FSMGDA",
    "Benchmark",
    "Clients",
    "Examples",
    "FedCMOO",
    "FedHV",
    "FedHVError",
    "GramTerms",
    "InputError",
    "LocalTraining",
    "Method",
    "Problem",
    "Reference",
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
