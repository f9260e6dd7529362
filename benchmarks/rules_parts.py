"""The parts of the study of rules: which runs each has, and on which other part's results it waits.

- rules: all loss-only rules, FedHV, Uniform and fixed weights at the setting's rates (a loss-only rule has FedHV's)
- gradients: FSMGDA, FedCMOO and rules of TorchJD that need gradients
- tune: `fedhv.tune` of the rules; tuned: the rules at the rates and knobs found
- fixed: nine fixed weights, the front that a rule has to go beyond
- knobs: every rule over seven values of its knob
- average: constant weights equal to the time average of FedHV's
- averages: constant weights equal to the time average of every other rule's
- margins: FedHV with other margins, and without calibration, r = log C + δ
- calibrations: FedHV with references from other calibration seeds
- fresh: FedHV with weights from this round's reports instead of the last round's
- partitions: some rules on other partitions of the examples
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.methods import FedHV, Method
from fedhv.methods.base import Conversation, State
from fedhv.methods.knobs import KNOBS
from fedhv.methods.reports import reported_losses
from fedhv.methods.rules.fixed import Fixed
from fedhv.methods.weights import inverse_slack_weights
from fedhv.protocol.requests import Train
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.fronts import FrontMethod, front_of
from fedhv.runs.record import SUMMARY, read_run
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.variants import Variant
from fedhv.support.errors import InputError

LOSS_ONLY = (
    "uniform", "fedhv", "fedhv-moving", "fixed", "normalised", "power", "geometric", "stch", "afl", "dwa", "famo",
    "uncertainty", "imtl-l",
)  # fmt: skip
LEADING = ("fixed", "fedhv", "fedhv-moving", "power", "stch", "afl")
"""The rules for the worst task and the two that they are compared with."""
GRADIENTS = (
    "fsmgda", "fedcmoo", "torchjd:UPGrad", "torchjd:MGDA", "torchjd:PCGrad", "torchjd:AlignedMTL", "torchjd:IMTLG",
    "torchjd:DualProj", "torchjd:CAGrad",
)  # fmt: skip
REQUIRED = {"torchjd:CAGrad": {"c": 0.5}}
"""Hyper-parameters that a rule of TorchJD has no default for."""
SUMMED = ("torchjd:PCGrad",)
"""Rules of TorchJD whose result is as long as a sum of task updates; their server's rate is divided by m."""
GROUPS = {
    "all": LOSS_ONLY,
    "leading": LEADING,
    "others": tuple(rule for rule in LOSS_ONLY if rule not in LEADING),
    "adaptive": tuple(rule for rule in LOSS_ONLY if rule not in ("uniform", "fixed", "normalised", "fedhv")),
    "updates": tuple(rule for rule in GRADIENTS if rule != "fedcmoo"),
}
"""Rules by name; "updates" are those on task updates: a round of FedCMOO takes five to ten times as long on a GPU."""
MARGINS = (0.05, 0.5, 1.0, 3.0)
UNCALIBRATED = (0.15, 1.0)
CALIBRATION_SEEDS = (1, 2, 3, 4)
PARTITIONS = (11, 12, 13, 14)
POINTS, KNOB_POINTS, TRIALS = 9, 7, 9
PARTS = (
    "rules", "fixed", "average", "averages", "margins", "fresh", "knobs", "calibrations", "partitions", "gradients",
    "tune", "tuned",
)  # fmt: skip
WAITING = {
    "average": 1, "margins": len(MARGINS) + len(UNCALIBRATED), "fresh": 1, "calibrations": len(CALIBRATION_SEEDS),
}  # fmt: skip
"""How many runs for a seed a part has that waits for another's results; "tuned" has one for each rule."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshFedHV(FedHV):
    """FedHV with fresh weights: the cohort reports first, then trains with the weights of these reports.

    One more exchange in every round. The clients of both exchanges are the same.
    """

    name = "fedhv-fresh"
    rates_of = "fedhv"

    def round(self, state: State) -> Conversation:
        first = yield Train(state.model, state.weights, report=self.report)
        losses = reported_losses(first)
        weights = inverse_slack_weights(losses, self.reference, self.floor, self.preferences)
        replies = yield Train(state.model, weights)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=weights,
            record={"report": losses.tolist(), "weights": weights.tolist()},
        )


@dataclass(frozen=True)
class Part:
    """One study: where it is, what is changed in the setting, and its variants."""

    folder: Path
    changes: tuple[str, ...]
    variants: tuple[Variant, ...]

    def missing(self, seeds: Sequence[int]) -> int:
        """The number of runs that are not finished."""
        places = (each.place(self.folder, seed) for each in self.variants for seed in seeds)
        return sum(not (place / SUMMARY).exists() for place in places)


def parts(
    name: str, setting: Setting, out: Path, seeds: Sequence[int], tasks: int, rules: Sequence[str] = LOSS_ONLY
) -> list[Part]:
    """The studies of a part that can be made now; a part that needs another's results is empty before these."""
    place = out / setting.name / name
    plain = rules_folder(out, setting)

    def methods(names: Iterable[str], of: Setting = setting) -> tuple[Variant, ...]:
        return tuple(Variant("", each) for each in _made(names, of, tasks))

    match name:
        case "rules":
            return [Part(place, (), methods(rules))]
        case "gradients":
            chosen_rules = [rule for rule in GRADIENTS if rule in rules]
            return [Part(place, (), methods(chosen_rules or GRADIENTS))]
        case "fixed":
            return [Part(place, (), _front("fixed", None, setting, tasks).variants)]
        case "knobs":
            chosen = [_front(rule, KNOBS[rule].key, setting, tasks) for rule in rules if rule in KNOBS]
            return [Part(place, (), tuple(variant for each in chosen for variant in each.variants))]
        case "average":
            return _averages({"average": FedHV.name}, setting, place, plain, seeds)
        case "averages":
            adaptive = [rule for rule in GROUPS["adaptive"] if rule in rules]
            return _averages({average_label(rule): rule for rule in adaptive}, setting, place, plain, seeds)
        case "margins" | "fresh" | "calibrations":
            reference = reference_of(plain)
            variants = () if reference is None else tuple(_references(name, setting, reference, out))
            return [Part(place, (), variants)] if variants else []
        case "partitions":
            leading = [rule for rule in LEADING if rule in rules]
            return [Part(place / f"seed{p}", (f"federation.seed={p}",), methods(leading)) for p in PARTITIONS]
        case "tuned":
            path = out / setting.name / "tune" / "tuned.toml"
            return [Part(place, (), methods(rules, load_setting(str(path))))] if path.exists() else []
    raise InputError(f"Unknown part '{name}'. Expected one of {', '.join(PARTS)}.")


def _made(names: Iterable[str], setting: Setting, tasks: int) -> list[Method]:
    """The methods that can be made here: those of TorchJD need TorchJD, and some of them a solver."""
    found = []
    for name in names:
        given = dict(setting.methods.get(name, {})) | REQUIRED.get(name, {})
        changed = dataclasses.replace(setting, methods=dict(setting.methods) | {name: given}) if given else setting
        try:
            method = changed.method(name)
            method.check(tasks)
        except Exception as error:  # an error of this package, of TorchJD or of its solvers
            if not name.startswith("torchjd:"):
                raise
            print(f"{name} is left out: {error}", flush=True)
            continue
        if name in SUMMED and name not in setting.methods:  # a rate that was tuned is the rule's own
            changes: dict[str, Any] = {"server_lr": method.server_lr / tasks}
            method = dataclasses.replace(method, **changes)
        found.append(method)
    return found


def _front(rule: str, over: str | None, setting: Setting, tasks: int) -> FrontMethod:
    return front_of(setting.method(rule), over, POINTS if over is None else KNOB_POINTS, tasks, {})


def _rated(method: Any, setting: Setting) -> Any:
    """The method with FedHV's rates."""
    like = setting.method("fedhv")
    return dataclasses.replace(method, server_lr=like.server_lr, local_lr=like.local_lr)


def rules_folder(out: Path, setting: Setting) -> Path:
    """The folder of the part "rules", which has the reference for the other parts."""
    return out / setting.name / "rules"


def reference_of(rules: Path) -> Reference | None:
    """The reference of the part "rules", if it is calibrated."""
    path = rules / "reference.toml"
    return read_reference(path) if path.exists() else None


def average_label(rule: str) -> str:
    """What the constant weights equal to a rule's average are called."""
    return f"average-{rule}"


def _averages(
    wanted: Mapping[str, str], setting: Setting, place: Path, rules: Path, seeds: Sequence[int]
) -> list[Part]:
    """Constant weights, by label, equal to the averages of rules whose runs are finished."""
    found = {label: average_weights(rules, rule, seeds) for label, rule in wanted.items()}
    constant = _rated(Fixed(), setting)
    variants = [
        Variant(label, dataclasses.replace(constant, preferences=weights))
        for label, weights in found.items()
        if weights
    ]
    return [Part(place, (), tuple(variants))] if variants else []


def average_weights(rules: Path, rule: str, seeds: Sequence[int]) -> tuple[float, ...] | None:
    """The mean of a rule's weights over rounds and seeds."""
    folders = [rules / f"{rule}-seed{seed}" for seed in seeds]
    if not all((folder / SUMMARY).exists() for folder in folders):
        return None
    rows = [each.weights for folder in folders for each in read_run(folder).rounds]
    return tuple(round(statistics.fmean(column), 6) for column in zip(*rows, strict=True))


def calibration_path(out: Path, setting: Setting, seed: int) -> Path:
    """The reference from a calibration with this seed."""
    return out / setting.name / "calibrations" / f"reference-{seed}.toml"


def _references(name: str, setting: Setting, reference: Reference, out: Path) -> Iterable[Variant]:
    fedhv: Any = setting.method("fedhv")

    def with_values(label: str, values: Sequence[float]) -> Variant:
        return Variant(label, dataclasses.replace(fedhv, reference=tuple(values)))

    if name == "fresh":
        fields = {each.name: getattr(fedhv, each.name) for each in dataclasses.fields(fedhv)}
        yield Variant("fresh", FreshFedHV(**fields | {"reference": reference.values}))
        return
    if name == "margins":
        maxima = reference.provenance.maxima
        for margin in MARGINS:
            yield with_values(f"margin-{margin}", [loss + margin for loss in maxima])
        counts = classes(setting)
        for margin in UNCALIBRATED if counts else ():
            yield with_values(f"log-c-{margin}", [math.log(c) + margin for c in counts])
        return
    for seed in CALIBRATION_SEEDS:
        path = calibration_path(out, setting, seed)
        if path.exists():
            yield with_values(f"seed-{seed}", read_reference(path).values)


def classes(setting: Setting) -> list[int]:
    """The classes of every task, where a uniform guess has the loss log C."""
    return {"digits": [10, 10], "multimnist": [10, 10], "mnist-fmnist": [10, 10], "tox21": [2] * 12}.get(
        setting.benchmark, [10, 10] if setting.benchmark.startswith("cifar10") else []
    )
