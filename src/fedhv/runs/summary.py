"""`summary.json`: what a run came to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedhv.protocol.traffic import BYTES_PER_SCALAR
from fedhv.runs.history import evaluations
from fedhv.runs.reference import Reference
from fedhv.support.numbers import is_number

NUMBER, WHOLE = float, int
SHAPE: dict[str, Any] = {
    "setting": str,
    "method": str,
    "seed": WHOLE,
    "rounds": WHOLE,
    **dict.fromkeys(("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume"), NUMBER),
    "tasks": [{"name": str, "accuracy": NUMBER, "loss": NUMBER}],
    "weights": [NUMBER],
    "communication": dict.fromkeys(("downlink_bytes", "uplink_bytes", "calibration_bytes", "total_bytes"), NUMBER),
    **dict.fromkeys(("seconds", "calibration_seconds", "total_seconds"), NUMBER),
}
"""What every summary holds, and what whoever reads one may count on."""


def summarise(
    *,
    setting: str,
    method: str,
    seed: int,
    machine: dict[str, Any],
    participants: int,
    parameters: int,
    history: Sequence[dict[str, Any]],
    reference: Reference | None,
) -> dict[str, Any]:
    """The final evaluation, the weights, the diagnostics of the reference, and what was sent.

    Accuracies are percentages. `calibration_bytes` and `calibration_seconds` are what the reference cost, and
    `total_bytes` and `total_seconds` include them.
    """
    final = evaluations(history)[-1]["evaluation"]
    down, up = (sum(record[key] for record in history) for key in ("downlink_bytes", "uplink_bytes"))
    seconds = sum(record["seconds"] for record in history)
    slack = [min(record["slack"]) for record in history if "slack" in record]
    # What the method adds to a plain exchange of the model, per client and round.
    auxiliary = _auxiliary(history, participants, parameters)
    calibration_bytes = reference.cost.traffic.total if reference else 0
    calibration_seconds = reference.cost.seconds if reference else 0.0
    return {
        "setting": setting,
        "method": method,
        "seed": seed,
        **machine,
        "rounds": len(history),
        **{key: final[key] for key in ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "tasks")},
        "weights": history[-1]["weights"],
        "reference": list(reference.values) if reference else None,
        "min_report_slack": min(slack) if slack else None,
        "floor_activations": sum(record.get("floored", 0) for record in history),
        **_incidents(history),
        "communication": {
            "downlink_bytes": down,
            "uplink_bytes": up,
            "calibration_bytes": calibration_bytes,
            "total_bytes": down + up + calibration_bytes,
            "auxiliary_scalars_per_client_round": auxiliary,
        },
        "seconds": round(seconds, 3),
        "calibration_seconds": round(calibration_seconds, 3),
        "total_seconds": round(seconds + calibration_seconds, 3),
    }


def _auxiliary(history: Sequence[dict[str, Any]], participants: int, parameters: int) -> float | None:
    """Scalars beside the model, per client and round, from the rounds in which every client answered."""
    whole = [record for record in history if "refused" not in record]
    if not whole:
        return None
    moved = sum(record["downlink_bytes"] + record["uplink_bytes"] for record in whole)
    auxiliary = moved / (BYTES_PER_SCALAR * participants * len(whole)) - 2 * parameters
    return int(auxiliary) if auxiliary == int(auxiliary) else auxiliary


def _incidents(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the server left out, and what the reference watch saw; nothing of it where nothing happened."""
    found: dict[str, Any] = {}
    refused = [refusal for record in history for refusal in record.get("refused", ())]
    if refused:
        reasons = Counter(reason_kind(refusal["reason"]) for refusal in refused)
        found["refused"] = {
            "replies": len(refused),
            "rounds": sum("refused" in record for record in history),
            "repeated_rounds": sum("attempts" in record for record in history),
            "reasons": dict(reasons.most_common()),
        }
    watched = [record for record in history if "watch" in record]
    if watched:
        found["watch"] = {
            "rounds": len(watched),
            "first_round": watched[0]["round"],
            "lowest_slack": min(breach["slack"] for record in watched for breach in record["watch"]),
            "raised": [{"round": r["round"], "reference": r["raised"]} for r in watched if "raised" in r],
        }
    return found


def reason_kind(reason: str) -> str:
    """A reason without its numbers, so that reasons can be counted."""
    return re.sub(r"\s*(of norm|loss of|of shape) .*", r" \1 …", reason) if re.search(r"\d", reason) else reason


def objection(summary: Any) -> str | None:
    """Why this is no summary of a run, in a few words; None where it is one."""
    found = _mismatch(summary, SHAPE, "")
    if found is None and not len(summary["tasks"]) == len(summary["weights"]) > 0:
        return "`weights` should be one for every task"
    return found


def _mismatch(value: Any, shape: Any, where: str) -> str | None:
    match shape:
        case dict():
            if not isinstance(value, dict):
                return f"`{where}` should be an object"
            pairs = ((f"{where}.{key}" if where else key, value.get(key), each) for key, each in shape.items())
            return next((found for name, inner, each in pairs if (found := _mismatch(inner, each, name))), None)
        case [each]:
            if not isinstance(value, list):
                return f"`{where}` should be a list"
            return next((found for i, v in enumerate(value) if (found := _mismatch(v, each, f"{where}[{i}]"))), None)
    fits = is_number(value) if shape is NUMBER else type(value) is shape
    return None if fits else f"`{where}` should be {'text' if shape is str else 'a number'}"
