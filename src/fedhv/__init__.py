"""FedHV: task-wise federated multi-objective optimisation with m numbers a client."""

from fedhv._version import __version__
from fedhv.calibration import calibrate
from fedhv.cohort import LocalTraining
from fedhv.config import Setting, load_setting
from fedhv.errors import FedHVError, InputError
from fedhv.folders import Result
from fedhv.messages import GramTerms, TaskGradients, TaskUpdates, Train
from fedhv.methods import FSMGDA, FedCMOO, FedHV, Method, State, Uniform
from fedhv.partition import partition
from fedhv.problem import Benchmark, Clients, Examples, Problem
from fedhv.reference import Reference
from fedhv.runs import run
from fedhv.study import compare
from fedhv.tasks import Task, classification, multilabel, regression
from fedhv.weights import inverse_slack_sum, inverse_slack_weights, log_hypervolume, slacks

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
    "partition",
    "regression",
    "run",
    "slacks",
]
