"""`fedhv list methods`: every method with its family, its needs and its communication."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedhv.cli.options import print_json
from fedhv.methods import CLIENT_SIDE, METHODS, RULES, make_method, method_class, required
from fedhv.methods.base import Method
from fedhv.methods.preferences import PreferenceMethod
from fedhv.methods.reporting import ReportingMethod
from fedhv.methods.torchjd_classes import torchjd_names
from fedhv.methods.uniform import Uniform
from fedhv.simulation.communication import RoundCommunication, communication


@dataclass(frozen=True)
class Listed:
    """One line of the list."""

    name: str
    family: str
    reference: bool
    preferences: bool
    hyperparameters: list[str]
    required: list[str]
    sends: RoundCommunication

    def as_dict(self) -> dict[str, Any]:
        """The line for JSON."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "sends"}
        return fields | dataclasses.asdict(self.sends) | {"extra": self.sends.extra}


def listed() -> list[Listed]:
    """All methods: the paper's, loss-only rules, those that change local training, and TorchJD's if it is installed."""
    own = [_listed(name, communication(make_method(name))) for name in [*METHODS, *RULES, *CLIENT_SIDE]]
    sent = {each.name: each.sends for each in own}
    # The communication of a TorchJD rule is that of its kind, for all hyper-parameters.
    return own + [_listed(name, sent[method_class(name).rates_of]) for name in torchjd_names()]


def print_methods(console: Console, as_json: bool) -> None:
    """The list as a table or as JSON."""
    rows = listed()
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("method", "family", "its hyper-\nparameters"):  # fits into 80 columns with no name divided
        table.add_column(title, overflow="fold")
    for title in ("down", "up", "extra"):
        table.add_column(title, justify="right")
    for row in rows:
        counts = (f"{count:,}" for count in (row.sends.down, row.sends.up, row.sends.extra))
        table.add_row(row.name, row.family, ", ".join(row.hyperparameters), *counts)
    console.print(table)
    model = rows[0].sends.model
    referenced = ", ".join(row.name for row in rows if row.reference)
    without_default = ", ".join(f"{row.name} ({', '.join(row.required)})" for row in rows if row.required)
    console.print(
        f"Needs a reference, which is calibrated if none is given: {referenced}.\n"
        + (f"Needs a value for a hyper-parameter: {without_default}.\n" if without_default else "")
        + f"down, up: scalars per client and round, for a model of {model:,} parameters and 3 tasks. "
        "extra: those besides the model and its update.",
        highlight=False,
    )


def _listed(name: str, sends: RoundCommunication) -> Listed:
    cls = method_class(name)
    fields = [each.name for each in dataclasses.fields(cls) if each.init]
    return Listed(
        name=name,
        family=_family(name, cls),
        reference="reference" in fields,
        preferences="preferences" in fields,
        hyperparameters=[each for each in fields if each not in COMMON],
        required=required(cls),
        sends=sends,
    )


def _family(name: str, cls: type[Method]) -> str:
    if name in CLIENT_SIDE:
        return "local training"
    if issubclass(cls, ReportingMethod):
        return "loss-only"
    return "equal weights" if issubclass(cls, Uniform) else "gradient"


COMMON = {each.name for each in dataclasses.fields(PreferenceMethod)} | {
    "reference",
    "watch",
    "watch_slack",
    "watch_margin",
}
"""Fields of the parts around a method, and fields with their own column."""
