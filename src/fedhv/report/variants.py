"""Runs of one method that differ in a hyper-parameter: which is the default, and which make an ablation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhv.methods import METHODS
from fedhv.report.choices import Part
from fedhv.report.escape import latex_text
from fedhv.report.reading import RunData
from fedhv.runs.config import shipped_settings
from fedhv.runs.folder import UNPROTECTED
from fedhv.runs.summary import RATES
from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number, short

Changes = tuple[tuple[str, Any], ...]
"""(key, value) of every hyper-parameter that differs from the default."""

NOT_COMPARED = (
    "name",
    "description",
    "benchmark",
    "evaluation.every",
    "evaluation.reference",
    "evaluation.explosion",
    "references.",
    "baselines.",
    "record.",
)
"""Keys that may differ between runs of one variant of a method."""


@dataclass(frozen=True)
class Factor:
    """A hyper-parameter's name in tables and figures; `known` ones have a symbol of the paper."""

    title: str
    symbol: str
    latex: str
    known: bool = True

    def of(self, value: Any) -> str:
        """For example "K = 10"."""
        return f"{self.symbol} = {value_text(value)}"

    def latex_of(self, value: Any) -> str:
        """For example "$K=10$"; the value is text for LaTeX already."""
        return f"${self.latex}={value}$"


FACTORS = {
    "report": Factor("Report budget", "B_rep", r"B_{\mathrm{rep}}"),
    "federation.participants": Factor("Participation", "M", "M"),
    "training.local_steps": Factor("Local steps", "K", "K"),
    "training.batch_size": Factor("Batch size", "b", "b"),
    "training.rounds": Factor("Rounds", "T", "T"),
    "federation.clients": Factor("Clients", "N", "N"),
    "federation.alpha": Factor("Dirichlet concentration", "α", r"\alpha"),
    "server_lr": Factor("Server learning rate", "η_g", r"\eta_g"),
    "local_lr": Factor("Local learning rate", "η_ℓ", r"\eta_\ell"),
    "calibration.margin": Factor("Reference margin", "δ_r", r"\delta_r"),
    "floor": Factor("Slack floor", "ρ_clip", r"\rho_{\mathrm{clip}}"),
    "evaluation.on": Factor("Evaluated on", "on", r"\mathrm{on}"),
    "evaluation.keep": Factor("Kept model", "kept", r"\mathrm{kept}"),
    "run.reports.clip": Factor("Clipping of reports", "C", "C"),
    "run.reports.noise": Factor("Noise of reports", "z", "z"),
}
"""The paper's names, then those of private reports. A method's hyper-parameters are identified by their last part."""


def factor(key: str) -> Factor:
    """The name of a hyper-parameter: the paper's if it has one, otherwise its key in the setting."""
    last = key.rpartition(".")[2]
    known = FACTORS.get(_known_as(key))
    return known or Factor(last.replace("_", " ").capitalize(), last, latex_text(last, math=True), known=False)


def factor_order(key: str) -> tuple[int, str]:
    """Sorts ablations: the paper's first, in its order."""
    names = list(FACTORS)
    return (names.index(_known_as(key)) if _known_as(key) in FACTORS else len(names)), key


def variants(runs: Sequence[RunData]) -> list[Changes]:
    """The hyper-parameters of every run of one setting that differ from the setting's default.

    The default of a hyper-parameter is the value that most of the distinct configurations share. If one factor at a
    time is varied, it is the common value of all sweeps. Ties are resolved by the shipped setting's value, then by the
    most frequent value, then by the largest number of rounds, because short runs are usually trials. A tie that these
    do not resolve gives no default: every value differs from it.

    What was only tried in a search, and the points of a front, do not count where there are other runs. If values of a
    method's own hyper-parameter were chosen, only these count.
    """
    flat = [hyper_parameters(run) for run in runs]
    parts = [run.role.part for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    shipped = _dotted({"run": {"reports": UNPROTECTED}}, "") | (_shipped(runs[0].setting) if runs else {})
    default: dict[str, str | None] = {}
    for key in keys:
        # A method's own hyper-parameters are compared among its runs, everything else among all.
        concerned = [(part, each) for part, each in zip(parts, flat, strict=True) if key in each]
        if len({frozen(each[key]) for _, each in concerned}) > 1:
            default[key] = _default(key, _deciding(key, concerned), shipped.get(key))
    return [
        tuple((key, each[key]) for key in default if key in each and frozen(each[key]) != default[key]) for each in flat
    ]


def hyper_parameters(run: RunData) -> dict[str, Any]:
    """The setting of a run as dotted keys, without those that may differ, and the privacy of its reports.

    Calibration is included if the method uses a reference.
    """
    flat = _dotted(run.record.table("setting"), "")
    flat |= _dotted({"run": {"reports": UNPROTECTED | run.record.table("run", "reports")}}, "")
    with_reference = run.reference is not None or hasattr(METHODS.get(run.method), "reference")
    ignored = NOT_COMPARED if with_reference else (*NOT_COMPARED, "calibration.")
    return {key: value for key, value in flat.items() if not key.startswith(ignored)}


def tuned_methods(setting: str) -> frozenset[str]:
    """The methods and baselines that the shipped setting of this name has rates for; empty if there is none."""
    return frozenset(key.split(".")[1] for key in _shipped(setting) if key.startswith(("methods.", "baselines.")))


def shipped_rates(setting: str) -> frozenset[tuple[float, float]]:
    """Server and local learning rate of every method in the shipped setting of this name."""
    flat = _shipped(setting)
    of = {key.split(".")[1] for key in flat if key.startswith("methods.")}
    pairs = [tuple(flat.get(f"methods.{name}.{rate}") for rate in RATES) for name in of]
    return frozenset((float(server), float(local)) for server, local in pairs if is_number(server) and is_number(local))


def describe(variant: Changes) -> str:
    """For example "K = 5, M = 20"; empty for the default."""
    return ", ".join(factor(key).of(value) for key, value in variant)


def frozen(value: Any) -> str:
    """Values as text, so that lists can be counted; 1 and 1.0 are the same hyper-parameter."""
    return repr(float(value)) if is_number(value) else repr(value)


def value_text(value: Any) -> str:
    """A value as text for tables. Different values have different texts."""
    return short(value) if isinstance(value, float) else str(value)


def sort_key(value: Any) -> tuple[int, float, str]:
    """Sorts numbers in ascending order, then words such as "all"."""
    return (0, float(value), "") if is_number(value) else (1, 0.0, str(value))


def _known_as(key: str) -> str:
    """The key without the method's name for a method's own hyper-parameters."""
    return key.rpartition(".")[2] if key.startswith("methods.") else key


def _deciding(key: str, configurations: Sequence[tuple[Part, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The configurations among which the default of a hyper-parameter is sought."""
    chosen = [each for part, each in configurations if part == "chosen"]
    if key.startswith("methods.") and chosen:
        return chosen
    shown = [each for part, each in configurations if part in ("chosen", "compared")]
    return shown or [each for _, each in configurations]


def _default(key: str, configurations: Sequence[Mapping[str, Any]], shipped: Any) -> str | None:
    """The default value as text; None if several are equally good."""
    distinct = {tuple(sorted((k, frozen(v)) for k, v in each.items())): each for each in configurations}
    shared = Counter(frozen(each[key]) for each in distinct.values())
    runs = Counter(frozen(each[key]) for each in configurations)
    values = {frozen(each[key]): each[key] for each in configurations}
    longest = max(values, key=lambda text: sort_key(values[text])) if key == "training.rounds" else None
    rank = {text: (shared[text], text == frozen(shipped), runs[text], text == longest) for text in values}
    best = [text for text in values if rank[text] == max(rank.values())]
    return best[0] if len(best) == 1 else None


def _dotted(table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _shipped(name: str) -> dict[str, Any]:
    path = shipped_settings().get(name)
    try:
        return _dotted(toml.read(path), "") if path else {}
    except InputError:
        return {}
