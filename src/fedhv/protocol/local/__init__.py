"""How a client trains: the update rule of its steps, and the terms of its objective beside the tasks' losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhv.protocol.local.schedule import Schedule
from fedhv.protocol.local.training import LocalTraining
from fedhv.support.lazy import exports

if TYPE_CHECKING:
    from fedhv.protocol.local.descent import descend
    from fedhv.protocol.local.entries import Entries
    from fedhv.protocol.local.rules import SGD, Adam, UpdateRule
    from fedhv.protocol.local.terms import Linear, Proximal, Term, stack_terms
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.protocol.local.descent": ["descend"],
            "fedhv.protocol.local.entries": ["Entries"],
            "fedhv.protocol.local.rules": ["SGD", "Adam", "UpdateRule"],
            "fedhv.protocol.local.terms": ["Linear", "Proximal", "Term", "stack_terms"],
        },
    )

__all__ = [
    "SGD",
    "Adam",
    "Entries",
    "Linear",
    "LocalTraining",
    "Proximal",
    "Schedule",
    "Term",
    "UpdateRule",
    "descend",
    "stack_terms",
]
