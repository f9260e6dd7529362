"""`summary.json`: the results of a run. Its keys are defined here and in `summary_tables` only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedhv.problem.skew import Skew
from fedhv.protocol.evaluation import Evaluation
from fedhv.runs.selected import Selected
from fedhv.runs.summary_tables import Communication, Refused, Watched
from fedhv.support.jsonfile import Fields

MACHINE = ("engine", "device", "precision", "torch")
"""The machine of a run: engine, device, precision, versions."""


RATES = ("server_lr", "local_lr")
"""The learning rates of server and clients, as the paper orders them."""


@dataclass(frozen=True, kw_only=True)
class Summary(Evaluation):
    """The results of a run: its last evaluation, its weights, the diagnostics of its reference, and its cost.

    Attributes:
        setting: The setting's name.
        method: The method's label.
        seed: The seed of all random draws of the run.
        rates: η_g and η_ℓ, the learning rates of server and clients; None where they are not known.
        machine: Engine, device, precision and torch's version.
        rounds: How many there were.
        weights: Those of the last round.
        labels: How many training examples are labelled, for every task; empty where all are.
        loss_units: The unit of every task's loss (`scale`); empty where losses are as they are.
        skew: The label skew over clients, for every task; empty where the examples are elsewhere.
        client_labels: For every client its number of examples, then of labels for every task; empty where all are
            labelled or clients live elsewhere.
        absent_rounds: In how many rounds no client of the cohort had labels of a task, by the task's number.
        reference: FedHV's.
        min_report_slack: The smallest slack of any report.
        floor_activations: How often a slack was below the floor.
        refused: Replies that were left out, if any were.
        watch: The findings of the reference watch, if any.
        selection: How the model was chosen, where clients hold out examples or the run was stopped.
        communication: The communication.
        seconds: Of all rounds.
        calibration_seconds: The time of the calibration.
        total_seconds: Both together.
        warm_up_seconds: Of compilation, which the others leave out.
        shared_clock: How many runs were computed together; their seconds are equal parts of one clock. None where it is
            not known.
    """

    setting: str
    method: str
    seed: int
    rates: tuple[float, float] | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    rounds: int
    weights: tuple[float, ...]
    labels: tuple[int, ...] = ()
    loss_units: tuple[float, ...] = ()
    skew: tuple[Skew, ...] = ()
    client_labels: tuple[tuple[int, ...], ...] = ()
    absent_rounds: Mapping[int, int] = field(default_factory=dict)
    reference: tuple[float, ...] | None = None
    min_report_slack: float | None = None
    floor_activations: int = 0
    refused: Refused | None = None
    watch: Watched | None = None
    selection: Selected | None = None
    communication: Communication
    seconds: float
    calibration_seconds: float
    total_seconds: float
    warm_up_seconds: float = 0.0
    shared_clock: int | None = None

    @property
    def clock_is_shared(self) -> bool:
        """Whether its times cannot be compared, since other runs were computed with it; assumed where it is unknown."""
        return self.machine.get("engine") == "stacked" if self.shared_clock is None else self.shared_clock > 1

    @classmethod
    def read(cls, summary: Any) -> Summary:
        """From the JSON object. Anything else raises a `ValueError` with the reason."""
        found = summary if isinstance(summary, Fields) else Fields(summary)
        head: dict[str, Any] = {key: found.text(key) for key in ("setting", "method")}
        head |= {"seed": found.whole("seed"), "rounds": found.whole("rounds", least=1)}
        evaluation, weights = Evaluation.read(found), found.numbers("weights")
        if len(weights) != len(evaluation.tasks):
            raise ValueError("`weights` should be one for every task")
        return cls(
            **head,
            **vars(evaluation),
            weights=weights,
            communication=Communication.read(found.object("communication")),
            seconds=found.number("seconds"),
            calibration_seconds=found.number("calibration_seconds"),
            total_seconds=found.number("total_seconds"),
            warm_up_seconds=found.number("warm_up_seconds") if "warm_up_seconds" in found else 0.0,
            shared_clock=found.whole("shared_clock", least=1) if "shared_clock" in found else None,
            rates=_rates(found),
            machine={key: found.text(key) for key in MACHINE if key in found},
            labels=tuple(int(n) for n in found.numbers("labels")) if "labels" in found else (),
            loss_units=found.numbers("loss_units") if "loss_units" in found else (),
            skew=_skew(found.object("label_skew")) if "label_skew" in found else (),
            client_labels=_counts(found.but(())),
            absent_rounds=_absent(found.object("absent_rounds")) if "absent_rounds" in found else {},
            reference=found.numbers("reference") if "reference" in found else None,
            min_report_slack=found.number("min_report_slack") if "min_report_slack" in found else None,
            floor_activations=found.whole("floor_activations") if "floor_activations" in found else 0,
            refused=Refused.read(found.object("refused")) if "refused" in found else None,
            watch=Watched.read(found.object("watch")) if "watch" in found else None,
            selection=Selected.read(found.object("selection")) if "selection" in found else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """As `summary.json` has it."""
        return {
            "setting": self.setting,
            "method": self.method,
            "seed": self.seed,
            **({} if self.rates is None else dict(zip(RATES, self.rates, strict=True))),
            **self.machine,
            "rounds": self.rounds,
            **super().as_dict(),
            "weights": list(self.weights),
            **({"labels": list(self.labels)} if self.labels else {}),
            **({"loss_units": list(self.loss_units)} if self.loss_units else {}),
            **({"label_skew": _skew_tables(self.skew)} if self.skew else {}),
            **({"client_labels": [list(row) for row in self.client_labels]} if self.client_labels else {}),
            **({"absent_rounds": {str(i): n for i, n in self.absent_rounds.items()}} if self.absent_rounds else {}),
            "reference": None if self.reference is None else list(self.reference),
            "min_report_slack": self.min_report_slack,
            "floor_activations": self.floor_activations,
            **({} if self.refused is None else {"refused": asdict(self.refused)}),
            **({} if self.watch is None else {"watch": self.watch.as_dict()}),
            **({} if self.selection is None else {"selection": self.selection.as_dict()}),
            "communication": asdict(self.communication),
            "seconds": self.seconds,
            "calibration_seconds": self.calibration_seconds,
            "total_seconds": self.total_seconds,
            **({"warm_up_seconds": self.warm_up_seconds} if self.warm_up_seconds else {}),
            **({} if self.shared_clock is None else {"shared_clock": self.shared_clock}),
        }

    def row(self) -> dict[str, Any]:
        """Its numbers and names in one flat row, for a table of many runs."""
        found = self.as_dict()
        by_task = dict(self.scalars())
        for name in ("weights", "reference", "loss_units"):
            values = found.pop(name, None) or []
            by_task |= {f"{name}/{task.name}": value for task, value in zip(self.tasks, values, strict=bool(values))}
        plain = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
        return plain | by_task | asdict(self.communication)

    @property
    def incidents(self) -> list[str]:
        """Notes on a finished run: replies that were left out, slacks that were too small."""
        lines = [self.selection.text] if self.selection is not None and self.selection.text else []
        if self.refused is not None:
            lines.append(self.refused.text)
        if self.watch is not None:
            lines.append(self.watch.text)
        return lines

    def warn(self) -> None:
        """Warn a Python caller that the reference was too low, unless it was raised as configured."""
        if self.watch is not None and not self.watch.raised:
            run = f"{self.method} seed {self.seed}"
            warnings.warn(f"{run}: {self.watch.text}. Calibrate it again, or with a larger margin.", stacklevel=3)


def _rates(found: Fields) -> tuple[float, float] | None:
    """Both learning rates, or None for a summary of an earlier version."""
    if not all(name in found for name in RATES):
        return None
    server, local = (found.number(name) for name in RATES)
    return server, local


def _skew_tables(skew: Sequence[Skew]) -> dict[str, list[float]]:
    return {key: [getattr(each, key) for each in skew] for key in ("found", "random")}


def _skew(fields: Fields) -> tuple[Skew, ...]:
    return tuple(map(Skew, fields.numbers("found"), fields.numbers("random")))


def _counts(found: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    rows = found.get("client_labels", [])
    known = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    if not known or not all(type(n) is int for row in rows for n in row):
        raise ValueError("`client_labels` should be a list of whole numbers for every client")
    return tuple(tuple(row) for row in rows)


def _absent(found: Fields) -> dict[int, int]:
    return {int(task): found.whole(task) for task in found.but(()) if task.isdecimal()}
