"""One reference for each family of settings, calibrated once as the paper did and shared by all its FedHV runs."""

from __future__ import annotations

from pathlib import Path

from fedhv.engines import Choice
from fedhv.paper.experiments import family
from fedhv.paper.plan import SETTINGS
from fedhv.runs.calibration import find_reference, rule_asked, rule_of
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.reference import Reference, read_reference
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError
from fedhv.support.files import make_folder

FOLDER = "calibration"
NAME = "reference.toml"


def place(out: Path, under: str) -> Path:
    """The folder of a family's reference and its calibration runs."""
    return out / FOLDER / under


def members(under: str) -> list[str]:
    """The settings that share a reference."""
    return [setting for setting in SETTINGS if family(setting) == under]


def existing(out: Path, under: str) -> Reference | None:
    """The family's calibrated reference if it exists, also if a study of the family has calibrated it."""
    own = place(out, under) / NAME
    if own.exists():
        reference = read_reference(own)
        if not has_calibration_of(reference, load_setting(under)):
            raise InputError(
                f"{own} should have the calibration of setting {under}. Found another one. Choose another --out."
            )
        return reference
    for setting in members(under):
        path = out / setting / NAME
        if path.exists():
            reference = read_reference(path)
            if has_calibration_of(reference, load_setting(under)):
                return reference
    return None


def has_calibration_of(reference: Reference, setting: Setting) -> bool:
    """Whether a reference has the setting's calibration."""
    asked = rule_asked(setting, setting.calibration.setting or setting.name)
    return reference.provenance.calibrated and rule_of(reference) == asked


def calibrated(out: Path, under: str, choice: Choice, data: str | None, observer: Observer) -> Reference:
    """The family's reference, calibrated if it does not exist; an interrupted calibration is resumed."""
    reference = existing(out, under)
    if reference is None:
        setting = load_setting(under)
        folder = make_folder(place(out, under))
        reference = find_reference(setting, choice=choice, data=data, folder=folder, observer=observer)
        reference.write(folder / NAME)
    return reference


def check_shared_calibration(setting: str) -> None:
    """Raise an error if settings that share a reference differ in its calibration."""
    under = family(setting)
    mine, theirs = load_setting(setting), load_setting(under)
    if mine.calibration != theirs.calibration and under != setting:
        raise InputError(f"[calibration] of {setting} should equal that of {under}: they share a reference.")
