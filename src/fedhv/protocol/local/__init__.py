"""How a client trains: the update rule of its steps, and the terms of its objective beside the tasks' losses."""

from __future__ import annotations

from fedhv.protocol.local.descent import descend
from fedhv.protocol.local.rules import SGD, Adam, UpdateRule
from fedhv.protocol.local.schedule import Schedule
from fedhv.protocol.local.terms import Linear, Proximal, Term, stack_terms
from fedhv.protocol.local.training import LocalTraining

__all__ = [
    "SGD",
    "Adam",
    "Linear",
    "LocalTraining",
    "Proximal",
    "Schedule",
    "Term",
    "UpdateRule",
    "descend",
    "stack_terms",
]
