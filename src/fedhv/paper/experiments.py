"""The paper's experiments: their tables and the runs that they need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedhv.paper.plan import METHODS, SETTINGS, PlannedRun, ReproductionPlan, StudyVariant
from fedhv.runs.config import load_setting
from fedhv.runs.defaults import SEEDS
from fedhv.support.errors import InputError, unknown

TWO_TASKS = ("multimnist", "mnist-fmnist", "cifar10-mnist-a", "cifar10-mnist-b")
ADAPTIVE = ("fsmgda", "fedcmoo", "fedhv")
ABLATED = "cifar10-mnist-b"


@dataclass(frozen=True)
class Sweep:
    """One hyper-parameter of FedHV and its values; the setting's own value is among them."""

    name: str
    title: str
    symbol: str
    key: str
    suffix: str
    values: tuple[str, ...]
    default: str

    def variant(self, value: str) -> StudyVariant:
        """The study of one value; the default is the setting itself."""
        if value == self.default:
            return StudyVariant(ABLATED)
        return StudyVariant(ABLATED, f"{self.key}={value}", f"{self.suffix}{value}")


SWEEPS = (
    Sweep("report", "Report budget", "B_rep", "methods.fedhv.report", "report", ("1", "2", "5", "all"), "all"),
    Sweep(
        "participants", "Participation", "M", "federation.participants", "participants", ("5", "10", "20", "30"), "10"
    ),
    Sweep("local_steps", "Local steps", "K", "training.local_steps", "steps", ("1", "5", "10", "20"), "10"),
)


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Attributes:
        title: Its name in tables.
        variants: The settings with their changes.
        methods: The methods that the paper compares.
        calibrates: Whether references are a result of the experiment.
    """

    title: str
    variants: tuple[StudyVariant, ...]
    methods: tuple[str, ...] = METHODS
    calibrates: bool = False


def _plain(settings: Sequence[str]) -> tuple[StudyVariant, ...]:
    return tuple(StudyVariant(setting) for setting in settings)


EXPERIMENTS = {
    "main": Experiment("Mean and worst accuracy", _plain(SETTINGS)),
    "loss-hv": Experiment("Loss and hypervolume", _plain(SETTINGS)),
    "per-task": Experiment("Per task", _plain(TWO_TASKS), ADAPTIVE),
    "ablations": Experiment(
        "Ablations of FedHV",
        tuple(dict.fromkeys(sweep.variant(value) for sweep in SWEEPS for value in sweep.values)),
        ("fedhv",),
    ),
    "last10": Experiment("Last ten evaluations", _plain(SETTINGS), ADAPTIVE),
    "references": Experiment("References and their diagnostics", _plain(SETTINGS), ("fedhv",), calibrates=True),
    "efficiency": Experiment("Time and communication", _plain([ABLATED])),
}
ALL = "all"


def chosen(what: str) -> list[str]:
    """The experiments of a name, or all."""
    if what == ALL:
        return list(EXPERIMENTS)
    if what not in EXPERIMENTS:
        raise unknown("experiment", what, [*EXPERIMENTS, ALL])
    return [what]


@dataclass(frozen=True)
class Selection:
    """The selected settings, methods, seeds and rounds; None for the paper's."""

    settings: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = SEEDS
    rounds: int | None = None

    def __post_init__(self) -> None:
        _known("setting of the paper", self.settings, SETTINGS)
        _known("method of the paper", self.methods, METHODS)
        if not self.seeds or min(self.seeds) < 0:
            raise InputError(f"Seeds should be whole numbers from 0. Found {list(self.seeds)}.")
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"`rounds` should be at least 1. Found {self.rounds}.")

    @property
    def whole(self) -> bool:
        """Whether the selection is the paper's full set."""
        settings, methods = self.settings or SETTINGS, self.methods or METHODS
        same = set(settings) == set(SETTINGS) and set(methods) == set(METHODS)
        return same and set(self.seeds) == set(SEEDS) and self.rounds is None

    @property
    def difference(self) -> str:
        """The rounds and seeds that differ from the paper's, as a sentence."""
        rounds = "" if self.rounds is None else f"{self.rounds} rounds"
        seeds = "" if set(self.seeds) == set(SEEDS) else f"seeds {', '.join(map(str, self.seeds))}"
        asked = " and ".join(filter(None, (rounds, seeds)))
        papers = f"the paper's runs have the rounds of their settings and seeds {', '.join(map(str, SEEDS))}"
        return f"Ours with {asked}; {papers}." if asked else ""

    def has(self, setting: str) -> bool:
        """Whether a setting is selected."""
        return self.settings is None or setting in self.settings


def make_plan(experiments: Collection[str], selection: Selection) -> ReproductionPlan:
    """The runs of some experiments together, each once."""
    runs: dict[PlannedRun, None] = {}
    calibrations: dict[str, None] = {}
    for name in experiments:
        experiment = EXPERIMENTS[name]
        for variant in experiment.variants:
            if not selection.has(variant.setting):
                continue
            if experiment.calibrates:
                calibrations[family(variant.setting)] = None
            for seed in dict.fromkeys(selection.seeds):
                for method in experiment.methods:
                    if selection.methods is None or method in selection.methods:
                        runs[PlannedRun(variant, method, seed, selection.rounds)] = None
    if not runs and not calibrations:
        raise InputError(f"The selection has no run of {', '.join(experiments)}: {_has(experiments)}.")
    return ReproductionPlan(_study_by_study(runs), tuple(calibrations))


def family(setting: str) -> str:
    """The setting that calibrates a setting's reference; settings of one family share it."""
    return load_setting(setting).calibration.setting or setting


def _study_by_study(runs: Collection[PlannedRun]) -> tuple[PlannedRun, ...]:
    studies = list(dict.fromkeys(run.variant for run in runs))
    order = {variant: i for i, variant in enumerate(studies)}
    return tuple(sorted(runs, key=lambda run: order[run.variant]))


def _has(experiments: Collection[str]) -> str:
    settings = {variant.setting: None for name in experiments for variant in EXPERIMENTS[name].variants}
    methods = {method: None for name in experiments for method in EXPERIMENTS[name].methods}
    return f"the paper has it for {', '.join(settings)} with {', '.join(methods)}"


def _known(kind: str, given: tuple[str, ...] | None, known: Sequence[str]) -> None:
    if given is not None and not given:
        raise InputError(f"Name at least one {kind}: {', '.join(known)}.")
    for name in given or ():
        if name not in known:
            raise unknown(kind, name, known)
