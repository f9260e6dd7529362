"""The figures of a study, as PNG and as PDF."""

from fedhv.report.figures.benchmark import examples, label_distribution
from fedhv.report.figures.writing import check_matplotlib, write_figures

__all__ = ["check_matplotlib", "examples", "label_distribution", "write_figures"]
