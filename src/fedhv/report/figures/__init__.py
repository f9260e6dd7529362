"""The figures of a study, as PNG and as PDF."""

from fedhv.report.figures.benchmark import examples, label_distribution
from fedhv.report.figures.writing import write_figures

__all__ = ["examples", "label_distribution", "write_figures"]
