"""The public functions `run`, `calibrate`, `compare`, `tune` and `front`; they take the same arguments."""

from fedhv.interface.calibrating import calibrate
from fedhv.interface.comparing import compare
from fedhv.interface.fronts import front
from fedhv.interface.single import run
from fedhv.interface.tuning import tune

__all__ = ["calibrate", "compare", "front", "run", "tune"]
