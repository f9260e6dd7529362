"""The runs of an experiment: setting × method × seed, and changes of the setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.runs.config import Setting, load_setting, method_tables
from fedhv.support import toml

SETTINGS = ("multimnist", "mnist-fmnist", "celeba5-a", "celeba5-b", "cifar10-mnist-a", "cifar10-mnist-b")
"""The paper's, in its order."""
METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")
"""The paper's, in its order."""
REFERENCES = ("calibrated", "paper", "ours")
"""The sources of FedHV's reference."""


@dataclass(frozen=True)
class StudyVariant:
    """A setting, or a setting with a hyper-parameter changed; its runs are one study in one folder.

    The runs of a variant have the setting's own name, so that a report on all of them shows an ablation.
    """

    setting: str
    change: str = ""
    suffix: str = ""

    @property
    def name(self) -> str:
        """The study's folder: "cifar10-mnist-b", "cifar10-mnist-b-report1"."""
        return f"{self.setting}-{self.suffix}" if self.suffix else self.setting

    @property
    def overrides(self) -> tuple[str, ...]:
        """The changes in the form of `--set`."""
        return (self.change,) if self.change else ()


@dataclass(frozen=True)
class PlannedRun:
    """One run."""

    variant: StudyVariant
    method: str
    seed: int
    rounds: int | None = None

    @property
    def name(self) -> str:
        """Its folder, relative to the reproduction's."""
        return f"{self.variant.name}/{self.method}-seed{self.seed}"

    def folder(self, out: Path) -> Path:
        """Its folder."""
        return out / self.name

    @property
    def resolved(self) -> Setting:
        """Its setting with all changes."""
        changes = [] if self.rounds is None else [f"training.rounds={self.rounds}"]
        return load_setting(self.variant.setting, [*self.variant.overrides, *changes])

    def config(self) -> dict[str, Any]:
        """The setting and method tables of its `config.toml`."""
        setting = self.resolved
        parameters = {k: v for k, v in method_tables(setting.method(self.method)).items() if k != "reference"}
        tables = toml.as_tables(setting) | {"methods": {self.method: parameters}}
        return toml.read_back(tables)


@dataclass(frozen=True)
class ReproductionPlan:
    """The runs of some experiments, and the calibrations that are results themselves.

    Attributes:
        runs: All runs without repetition, study by study.
        calibrations: Settings whose calibrated reference is a result, in addition to those that runs need.
    """

    runs: tuple[PlannedRun, ...]
    calibrations: tuple[str, ...] = ()

    def studies(self) -> dict[StudyVariant, tuple[PlannedRun, ...]]:
        """The runs of every study."""
        studies: dict[StudyVariant, list[PlannedRun]] = {}
        for run in self.runs:
            studies.setdefault(run.variant, []).append(run)
        return {variant: tuple(runs) for variant, runs in studies.items()}
