"""A federated multi-task problem: a model, its tasks, examples, and the clients that hold them."""

from fedhv.problem.augmentation import Augmentation
from fedhv.problem.benchmark import Benchmark, Problem
from fedhv.problem.clients import Clients
from fedhv.problem.examples import Examples

__all__ = ["Augmentation", "Benchmark", "Clients", "Examples", "Problem"]
