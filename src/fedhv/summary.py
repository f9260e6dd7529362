"""`summary.json`: what a run came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedhv.communication import BYTES_PER_SCALAR
from fedhv.history import evaluations
from fedhv.reference import Reference


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
    auxiliary = (down + up) / (BYTES_PER_SCALAR * participants * len(history)) - 2 * parameters
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
        "communication": {
            "downlink_bytes": down,
            "uplink_bytes": up,
            "calibration_bytes": calibration_bytes,
            "total_bytes": down + up + calibration_bytes,
            "auxiliary_scalars_per_client_round": int(auxiliary) if auxiliary == int(auxiliary) else auxiliary,
        },
        "seconds": round(seconds, 3),
        "calibration_seconds": round(calibration_seconds, 3),
        "total_seconds": round(seconds + calibration_seconds, 3),
    }
