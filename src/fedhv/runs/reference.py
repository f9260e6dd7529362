"""The frozen reference r with its provenance and cost, in a TOML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedhv._version import __version__
from fedhv.protocol.traffic import Traffic
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic

CALIBRATION = "calibration"
"""The source of a reference that was calibrated."""

ALIKE = 1.25
"""Units that differ by a smaller factor are the same ones, measured on other examples."""


@dataclass(frozen=True)
class Provenance:
    """Which calibration gave a reference."""

    source: str = "given"
    setting: str = ""
    seeds: tuple[int, ...] = ()
    rounds: int = 0
    margin: float = 0.0
    server_lr: float = 0.0
    local_lr: float = 0.0
    maxima: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    """The unit of every task's loss (`scale`); empty where losses are as they are."""
    fedhv: str = __version__

    @property
    def calibrated(self) -> bool:
        """Whether a calibration gave the reference; of others only the numbers are known."""
        return self.source == CALIBRATION


@dataclass(frozen=True)
class Cost:
    """The cost of all calibration runs together."""

    rounds: int = 0
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    seconds: float = 0.0

    @property
    def traffic(self) -> Traffic:
        """Bytes in both directions."""
        return Traffic(self.downlink_bytes, self.uplink_bytes)


@dataclass(frozen=True)
class Reference:
    """One loss per task that training should stay below."""

    values: tuple[float, ...]
    tasks: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        if not self.values or not all(0 < value < float("inf") for value in self.values):
            raise InputError(f"A reference should be positive and finite. Found {list(self.values)}.")

    def check(self, tasks: tuple[str, ...]) -> None:
        """Refuse a reference that is for other tasks."""
        if len(self.values) != len(tasks):
            raise InputError(
                f"The reference should have {len(tasks)} values, one for each of {', '.join(tasks)}. "
                f"Found {len(self.values)}."
            )
        if self.tasks and self.tasks != tasks:
            raise InputError(f"The reference should be for tasks {', '.join(tasks)}. Found {', '.join(self.tasks)}.")

    def check_units(self, units: Sequence[float]) -> None:
        """Refuse a reference whose calibration had losses in other units. Given numbers are in any units."""
        if not self.provenance.calibrated:
            return
        ours, theirs = (tuple(each) or (1.0,) * len(self.values) for each in (units, self.provenance.units))
        if any(not 1 / ALIKE <= a / b <= ALIKE for a, b in zip(ours, theirs, strict=True)):
            raise InputError(
                f"The reference should have the units of this problem's losses, {_said(ours)}. Found one that was "
                f"calibrated in units of {_said(theirs)}. Calibrate it with the same `scale`, or give its numbers."
            )

    def write(self, path: Path) -> None:
        """As a TOML file."""
        comment = "The reference losses r of FedHV: weights are w_i ∝ 1/(r_i − f_i)."
        write_atomic(path, toml.write(toml.as_tables(self), comment))


def _said(units: Sequence[float]) -> str:
    return ", ".join(f"{unit:g}" for unit in units)


def read_reference(path: Path) -> Reference:
    """A reference file; `values = [...]` alone is enough."""
    try:
        return toml.build(Reference, toml.read(path))
    except InputError as error:
        message = str(error)
        raise InputError(message if str(path) in message else f"{path}: {message}") from None
