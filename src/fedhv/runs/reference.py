"""The frozen reference r with its provenance and cost, in a TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedhv._version import __version__
from fedhv.protocol.traffic import Traffic
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic


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
    fedhv: str = __version__


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

    def write(self, path: Path) -> None:
        """As a TOML file."""
        comment = "The reference losses r of FedHV: weights are w_i ∝ 1/(r_i − f_i)."
        write_atomic(path, toml.write(toml.as_tables(self), comment))


def read_reference(path: Path) -> Reference:
    """A reference file; `values = [...]` alone is enough."""
    try:
        return toml.build(Reference, toml.read(path))
    except InputError as error:
        message = str(error)
        raise InputError(message if str(path) in message else f"{path}: {message}") from None
