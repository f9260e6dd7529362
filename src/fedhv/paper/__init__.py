"""The paper's experiments: which runs they need, running what is missing, and our numbers beside the paper's."""

from fedhv.paper.experiments import EXPERIMENTS, Selection, make_plan
from fedhv.paper.reproducing import Reproduction, rehearse, reproduce
from fedhv.paper.running import REFERENCES, Options

__all__ = ["EXPERIMENTS", "REFERENCES", "Options", "Reproduction", "Selection", "make_plan", "rehearse", "reproduce"]
