"""The paper's experiments: which runs they need, running what is missing, and our numbers beside the paper's."""

from fedhv.reproduce.experiments import EXPERIMENTS, Selection, make_plan
from fedhv.reproduce.reproducing import Reproduction, rehearse, reproduce
from fedhv.reproduce.running import REFERENCES, Options

__all__ = ["EXPERIMENTS", "REFERENCES", "Options", "Reproduction", "Selection", "make_plan", "rehearse", "reproduce"]
