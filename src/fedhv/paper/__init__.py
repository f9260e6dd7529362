"""The paper's experiments: published numbers, `fedhv reproduce`, the laboratory for the theory."""

from typing import TYPE_CHECKING

from fedhv.support.lazy import exports

if TYPE_CHECKING:
    from fedhv.paper.experiments import EXPERIMENTS, Selection, make_plan
    from fedhv.paper.plan import REFERENCES
    from fedhv.paper.reproducing import Reproduction, planned_runs, reproduce
    from fedhv.paper.running import Options
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.paper.experiments": ["EXPERIMENTS", "Selection", "make_plan"],
            "fedhv.paper.plan": ["REFERENCES"],
            "fedhv.paper.reproducing": ["Reproduction", "planned_runs", "reproduce"],
            "fedhv.paper.running": ["Options"],
        },
    )

__all__ = [
    "EXPERIMENTS",
    "REFERENCES",
    "Options",
    "Reproduction",
    "Selection",
    "make_plan",
    "planned_runs",
    "reproduce",
]
