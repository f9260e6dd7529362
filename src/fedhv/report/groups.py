"""The parts of a study: settings, groups of runs that differ in their seed only, and ablations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedhv.methods import METHODS
from fedhv.report.choices import PARTS, Role
from fedhv.report.reading import RunData
from fedhv.report.variants import Changes, Factor, describe, factor
from fedhv.runs.defaults import BASELINES

ORDER = ("uniform", "fsmgda", "fedcmoo", "fedhv")
"""The paper's order of methods; others come before its own, by name."""

SETTING_TITLES = {
    "multimnist": "MultiMNIST",
    "mnist-fmnist": "MNIST–FMNIST",
    "celeba5-a": "CelebA5-A",
    "celeba5-b": "CelebA5-B",
    "cifar10-mnist-a": "CIFAR10–MNIST-A",
    "cifar10-mnist-b": "CIFAR10–MNIST-B",
}
"""The paper's settings, in its order, as it writes them."""


@dataclass(frozen=True)
class Group:
    """The runs of one method and variant in one setting: one line of a table, one curve of a figure."""

    method: str
    variant: Changes
    runs: tuple[RunData, ...]

    @property
    def label(self) -> str:
        """Its name in tables and figures."""
        variant = describe(self.variant)
        return f"{method_title(self.method)} ({variant})" if variant else method_title(self.method)

    @property
    def baseline(self) -> bool:
        """Whether it is a baseline, which is compared with and not ranked."""
        return self.method in BASELINES

    @property
    def counted(self) -> tuple[RunData, ...]:
        """The runs for tables: the finished ones, or the unfinished ones if none has finished."""
        evaluated = tuple(run for run in self.runs if len(run.evaluations))
        return tuple(run for run in evaluated if run.finished) or evaluated

    @property
    def role(self) -> Role:
        """What it is in its study. It is chosen, or compared, if one of its runs is."""
        return min((run.role for run in self.runs), key=lambda role: PARTS.index(role.part))

    @property
    def unfinished(self) -> bool:
        """Whether tables use unfinished runs, because no run has finished."""
        return bool(self.counted) and not self.counted[0].finished


@dataclass(frozen=True)
class ReportSweep:
    """Groups of one method that differ in one hyper-parameter: an ablation."""

    method: str
    key: str
    values: tuple[Any, ...]
    groups: tuple[Group, ...]

    @property
    def factor(self) -> Factor:
        """The hyper-parameter's title and symbol."""
        return factor(self.key)

    @property
    def of_points(self) -> bool:
        """Whether these are the points of a front."""
        return any(run.role.part == "point" for group in self.groups for run in group.runs)


@dataclass(frozen=True)
class SettingStudy:
    """The runs of one setting.

    Attributes:
        name: Its name in tables.
        tasks: The names of its tasks.
        groups: The compared groups: every method, and variants outside ablations; the chosen ones of a search.
        sweeps: The ablations.
        runs: All runs.
        others: What neither is compared nor belongs to an ablation: the trials of a tuning, the points of a front.
    """

    name: str
    tasks: tuple[str, ...]
    groups: tuple[Group, ...]
    sweeps: tuple[ReportSweep, ...]
    runs: tuple[RunData, ...]
    others: tuple[Group, ...] = ()

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """The compared groups, then those of ablations only, then the others."""
        extra = [*(group for sweep in self.sweeps for group in sweep.groups), *self.others]
        return tuple({id(group): group for group in (*self.groups, *extra)}.values())


@dataclass(frozen=True)
class Beside:
    """What was found beside the runs.

    Attributes:
        fronts: Each as its file has it, reduced to what the page shows.
        paper: One entry per number of the paper: ours, the paper's, and whether they agree.
        notes: Files that cannot be used.
    """

    fronts: tuple[dict[str, Any], ...] = ()
    paper: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyData:
    """The data of a report."""

    title: str
    settings: tuple[SettingStudy, ...]
    notes: tuple[str, ...]
    beside: Beside = field(default_factory=Beside)

    @property
    def runs(self) -> tuple[RunData, ...]:
        """The runs of all settings."""
        return tuple(run for setting in self.settings for run in setting.runs)


def setting_title(name: str) -> str:
    """A setting as the paper writes it: CelebA5-A, not celeba5-a. Others keep their names."""
    base, number, rest = name.partition(" #")
    return SETTING_TITLES.get(base, base) + number + rest


def setting_rank(name: str) -> tuple[int, str]:
    """Sorts settings: the paper's first, in its order, then others by name."""
    titles = list(SETTING_TITLES)
    return (titles.index(name) if name in SETTING_TITLES else len(titles)), name


def method_title(name: str) -> str:
    """A method as the paper writes it: FedHV, not fedhv."""
    return METHODS[name].__name__ if name in METHODS else name


def method_rank(name: str) -> tuple[int, int, str]:
    """Sorts methods: the paper's baselines, then others by name, the paper's own last."""
    if name == ORDER[-1]:
        return 2, 0, name
    if name in BASELINES:
        return 3, BASELINES.index(name), name
    return (0, ORDER.index(name), name) if name in ORDER else (1, 0, name)
