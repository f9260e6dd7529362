"""The result of `fedhv.compare`: the runs, their table, data frame and report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from rich.console import Console

from fedhv.report.rates import pair_text
from fedhv.report.summaries import comparison_table
from fedhv.report.writing import write_report
from fedhv.runs.plot import plot_runs
from fedhv.runs.rates_file import ChosenRate
from fedhv.runs.record import Run
from fedhv.support.errors import FedHVError, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 140
"""The width, in characters, of a table that is not printed on a terminal."""


@dataclass(frozen=True, repr=False)
class Study(Sequence[Run]):
    """Several methods and seeds on one setting: a sequence of its runs.

    Attributes:
        runs: Ordered by seed, then by method.
        folder: The study's folder; None if the runs are in memory only.
        how: How these runs were chosen, if several learning rates were tried; empty otherwise.
        rates: For every method the chosen learning rate and those that were tried, as `rates.json` has them.
    """

    runs: tuple[Run, ...]
    folder: Path | None = None
    how: str = ""
    rates: Mapping[str, ChosenRate] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, index: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def table(self, width: int = WIDTH) -> str:
        """Mean ± sample standard deviation over seeds, as printed by `fedhv compare`."""
        return "\n".join(line.rstrip() for line in self._printed(width).export_text().splitlines())

    def as_dicts(self) -> list[dict[str, Any]]:
        """The summary of every run as JSON, with the choice of its learning rate where there was one."""
        return [run.summary.as_dict() | self._choice(run) for run in self.runs]

    def _choice(self, run: Run) -> dict[str, Any]:
        return {"rates": self.rates[run.method].as_dict()} if run.method in self.rates else {}

    def plot(self) -> Figure:
        """A matplotlib figure: every task's score and weight against the round, one line per method."""
        return plot_runs(self.runs)

    def to_frame(self) -> Any:
        """A pandas data frame with one row per run: results per task, and costs."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise FedHVError("`to_frame` needs pandas: pip install pandas.") from None
        return DataFrame([run.summary.row() for run in self.runs])

    def report(self, out: str | Path | None = None, *, figures: bool = True, data: str | None = None) -> Path:
        """Write the tables, the figures and the page of the study; returns the page.

        Args:
            out: The report's folder; by default `report` in the study's folder.
            figures: Whether figures are drawn; they need matplotlib.
            data: The folder of the datasets, for figures of the benchmark itself.
        """
        if self.folder is None:
            raise InputError("A report needs run folders. Found runs in memory only. Set `out` of `fedhv.compare`.")
        return write_report([self.folder], out, figures=figures, data=data).page

    def __repr__(self) -> str:
        """One line, with the learning rates where they differ; see `table()` for more."""
        rates = {run.method: pair_text(run.summary.rates) for run in self.runs}
        differ = len(set(rates.values())) > 1
        methods = ", ".join(f"{name} {pair}" if differ else name for name, pair in rates.items())
        where = f", {str(self.folder)!r}" if self.folder else ""
        return f"<Study: {len(self)} runs on {self.runs[0].setting} ({methods}){where}>"

    def _repr_html_(self) -> str:
        """A notebook's view: the table."""
        return self._printed(WIDTH).export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _printed(self, width: int) -> Console:
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(comparison_table([run.summary for run in self.runs], width, self.how))
        return console
