"""Local training of a client: its update rule, and additional terms of its objective."""

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
