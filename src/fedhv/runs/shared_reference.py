"""The reference that all methods of a study share, in the study's folder."""

from __future__ import annotations

from pathlib import Path

from fedhv.engines import Choice
from fedhv.methods import Method
from fedhv.problem.problem import Problem
from fedhv.runs.calibration import check_calibration, find_reference
from fedhv.runs.config import Setting
from fedhv.runs.record import REFERENCE
from fedhv.runs.reference import Reference, read_reference
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError

CALIBRATION = "calibration"
"""The folder of the runs behind a study's reference."""


def shared_reference(
    setting: Setting,
    method: Method,
    problem: Problem,
    folder: Path,
    given: Reference | None,
    choice: Choice,
    data: str | None,
    observer: Observer,
) -> Reference:
    """The reference in a study's folder: the one that is there, the given one, or a calibrated one.

    Raises an error if the one that is there is not the given one, or has another calibration than the setting's.
    """
    path, calibration = folder / REFERENCE, folder / CALIBRATION
    if path.exists():
        kept = read_reference(path)
        if given is not None and given.values != kept.values:
            raise InputError(f"{path} holds another reference than the given one. Choose another --out.")
        if given is None and kept.provenance.calibrated:
            check_calibration(kept, setting, method, problem, choice, data, calibration)
        return kept
    if given is None:
        observer.message("No reference was given.")
    reference = given or find_reference(
        setting, method, problem, choice=choice, data=data, folder=calibration, observer=observer
    )
    reference.write(path)
    return reference


def calibration_runs(folder: Path) -> list[Path]:
    """The runs behind the reference of a study."""
    return sorted((folder / CALIBRATION).glob("*"))
