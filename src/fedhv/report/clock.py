"""A run's seconds without compilation, and those of compilation: as recorded, or estimated where they are not.

Version 0.1 counted compilation into the round that it happened in, and into the seconds of a calibration. On a GPU such
a round takes many times as long as the others. It is then counted as a median round, the rounds of the calibration too,
and the rest as compilation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhv.report.reading import RunData
from fedhv.report.rounds import Array

COMPILED = 10
"""A round that takes more than this many times the median is taken for one with compilation."""
UNRECORDED = ("0.0.", "0.1.")
"""Versions whose references have compilation in their seconds."""


@dataclass(frozen=True)
class Clock:
    """Seconds of rounds (T) and of the calibration, and what compilation took in each.

    `estimated` says that some compilation was estimated.
    """

    seconds: Array
    compiling: Array
    calibration: float
    calibration_compiling: float
    estimated: bool

    @property
    def total(self) -> float:
        """The seconds of calibration and rounds."""
        return self.calibration + float(self.seconds.sum())


def clock_of(run: RunData) -> Clock:
    """The clock of a run."""
    seconds, compiling = np.nan_to_num(run.rounds.seconds), np.nan_to_num(run.rounds.warm_up)
    calibration = run.calibration_seconds
    kept = calibration
    if _may_hide_compilation(run):
        median = float(np.median(run.rounds.seconds))
        if not run.clock_is_recorded:
            compiling = np.where(seconds > COMPILED * median, seconds - median, 0.0)
            seconds = seconds - compiling
        if run.reference is not None and run.reference.provenance.fedhv.startswith(UNRECORDED):
            usual = run.reference.cost.rounds * median
            kept = usual if calibration > COMPILED * usual else calibration
    estimated = kept != calibration or (not run.clock_is_recorded and bool(compiling.any()))
    return Clock(seconds, compiling, kept, calibration - kept, estimated)


def _may_hide_compilation(run: RunData) -> bool:
    """On a GPU, with enough rounds for a median."""
    seconds = run.rounds.seconds
    on_gpu = run.record.machine.get("device", "cpu") != "cpu"
    return on_gpu and len(seconds) > 2 and bool(np.isfinite(seconds).all())
