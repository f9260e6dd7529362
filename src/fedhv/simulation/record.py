"""The record of a round in the history. The keys of `history.jsonl` are defined here only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedhv.methods.parts.watch import Breach
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.request import Refusal
from fedhv.protocol.traffic import Traffic
from fedhv.support.jsonfile import Fields
from fedhv.support.numbers import is_number


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of a run: one line of its history.

    Attributes:
        number: From 1.
        weights: The weights that the round used, not those that it computed.
        downlink_bytes: Bytes from the server to all clients.
        uplink_bytes: Bytes from all clients to the server.
        exchanges: The number of requests.
        seconds: Wall-clock time, without `warm_up`.
        warm_up: Seconds of compilation.
        shared: How many runs were computed together; their seconds are equal parts of one clock.
        report: The losses that the clients reported, one for every task.
        slack: How far they are below the reference.
        absent: The tasks, by number, that no client of the cohort has labels of; their last report counts.
        floored: How many slacks were below the floor.
        watch: The slacks that the reference watch found too small.
        raised: The reference that the round raised.
        weights_kept: Whether the method kept its weights because the computed ones were invalid.
        refused: The clients that the server left out.
        attempts: The number of cohorts that were tried.
        step_norm: The norm of the model's change, running statistics left out; None in histories of earlier versions.
        cohort: Who took part, where that is recorded: how many clients were there (`present`), who was `asked`, whose
            answers were `taken`, and the `norms` of their updates.
        evaluation: The evaluation of the model after the round, if there was one.
        validation: What clients found on the examples that they hold out, where they evaluated the model.
        extra: Other entries of the method or the engine.
    """

    number: int
    weights: tuple[float, ...]
    downlink_bytes: int
    uplink_bytes: int
    exchanges: int
    seconds: float = 0.0
    warm_up: float = 0.0
    shared: int = 1
    report: tuple[float, ...] | None = None
    slack: tuple[float, ...] | None = None
    floored: int | None = None
    absent: tuple[int, ...] = ()
    watch: tuple[Breach, ...] = ()
    raised: tuple[float, ...] | None = None
    weights_kept: bool = False
    refused: tuple[Refusal, ...] = ()
    attempts: int = 1
    step_norm: float | None = None
    cohort: Mapping[str, Any] | None = None
    evaluation: Evaluation | None = None
    validation: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def traffic(self) -> Traffic:
        """Bytes in both directions."""
        return Traffic(self.downlink_bytes, self.uplink_bytes)

    @classmethod
    def read(cls, record: Any) -> Round:
        """From one parsed line of a history. Anything else raises a `ValueError` with the reason."""
        found = Fields(record)
        number, weights = found.whole("round", least=1), found.numbers("weights")
        return cls(
            number=number,
            weights=weights,
            downlink_bytes=found.whole("downlink_bytes"),
            uplink_bytes=found.whole("uplink_bytes"),
            exchanges=found.whole("exchanges"),
            seconds=found.number("seconds"),
            warm_up=found.number("warm_up") if "warm_up" in found else 0.0,
            shared=found.whole("shared", least=1) if "shared" in found else 1,
            refused=tuple(_refusal(each) for each in found.objects("refused")) if "refused" in found else (),
            attempts=found.whole("attempts") if "attempts" in found else 1,
            step_norm=found.number("step_norm") if "step_norm" in found else None,
            cohort=found.object("cohort").but(()) if "cohort" in found else None,
            validation=found.object("validation").but(()) if "validation" in found else None,
            evaluation=Evaluation.read(found.object("evaluation")) if "evaluation" in found else None,
            **noted(record),
        )

    def as_dict(self) -> dict[str, Any]:
        """One line of the history."""
        breaches = [breach.as_dict() for breach in self.watch]
        record = {
            "round": self.number,
            "report": _list(self.report),
            "slack": _list(self.slack),
            "floored": self.floored,
            "absent": list(self.absent) or None,
            "watch": breaches or None,
            "raised": _list(self.raised),
            "weights": _list(self.weights),
            "weights_kept": self.weights_kept or None,
            **bytes_sent(self.traffic),
            "exchanges": self.exchanges,
            "seconds": self.seconds,
            "warm_up": self.warm_up or None,
            "shared": self.shared if self.shared > 1 else None,
            "refused": [refusal.as_dict() for refusal in self.refused] or None,
            "attempts": self.attempts if self.attempts > 1 else None,
            "step_norm": self.step_norm,
            "cohort": None if self.cohort is None else dict(self.cohort),
            "evaluation": self.evaluation.as_dict() if self.evaluation is not None else None,
            "validation": None if self.validation is None else dict(self.validation),
        }
        return {key: value for key, value in record.items() if value is not None} | dict(self.extra)

    def scalars(self, tasks: Sequence[str]) -> Iterator[tuple[str, float]]:
        """(name, value) of every number of the round. A list with one number per task is split by task."""
        for key, value in Fields(self.as_dict()).but({"round", "evaluation", "absent"}).items():
            if is_number(value):
                yield key, float(value)
            elif isinstance(value, list) and len(value) == len(tasks) and all(map(is_number, value)):
                yield from ((f"{key}/{task}", float(each)) for task, each in zip(tasks, value, strict=True))
        if self.evaluation is not None:
            for name, value in self.evaluation.scalars():
                yield f"evaluation/{name}", value


KEYS = frozenset(Round.__dataclass_fields__) - {"number", "extra"} | {"round"}


def bytes_sent(traffic: Traffic) -> dict[str, int]:
    """Bytes in both directions, as a history has them."""
    return {"downlink_bytes": traffic.down, "uplink_bytes": traffic.up}


def noted(record: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `State.record` as arguments of `Round`."""
    # Tensors and arrays are lists in a history.
    found = Fields({key: value.tolist() if hasattr(value, "tolist") else value for key, value in record.items()})
    arguments: dict[str, Any] = {key: found.numbers(key) for key in ("report", "slack", "raised") if key in found}
    if "floored" in found:
        arguments["floored"] = found.whole("floored")
    if "absent" in found:
        arguments["absent"] = tuple(int(task) for task in found.numbers("absent"))
    if "watch" in found:
        arguments["watch"] = tuple(_breach(each) for each in found.objects("watch"))
    extra = found.but(KEYS)
    for key, value in extra.items():
        try:
            json.dumps(value)
        except TypeError:
            what = f"`{key}` should be a number, text, or a list or dict of them, found {type(value).__name__}"
            raise ValueError(what) from None
    return arguments | {"weights_kept": bool(record.get("weights_kept")), "extra": extra}


def _breach(found: Fields) -> Breach:
    event: Any = found.text("event")
    return Breach(found.whole("task"), found.number("slack"), event)


def _refusal(found: Fields) -> Refusal:
    return Refusal(found.whole("client"), found.text("reason"))


def _list(values: tuple[float, ...] | None) -> list[float] | None:
    return None if values is None else list(values)
