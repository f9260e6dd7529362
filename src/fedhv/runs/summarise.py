"""The summary of a run from its rounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from fedhv.problem.skew import Skew
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.traffic import BYTES_PER_SCALAR
from fedhv.runs.reference import Reference
from fedhv.runs.selected import Selected
from fedhv.runs.summary import Summary
from fedhv.runs.summary_tables import Communication, Raised, Refused, Watched
from fedhv.simulation.record import Round
from fedhv.support.errors import FedHVError


def summarise(
    *,
    setting: str,
    method: str,
    seed: int,
    rates: tuple[float, float],
    machine: Mapping[str, str],
    participants: int,
    parameters: int,
    rounds: Sequence[Round],
    reference: Reference | None,
    labels: Sequence[int] | None = None,
    client_labels: Sequence[Sequence[int]] = (),
    final: Evaluation | None,
    selected: Selected | None = None,
    loss_units: Sequence[float] = (),
    skew: Sequence[Skew] = (),
) -> Summary:
    """The evaluation of the kept model, the weights, the diagnostics of the reference, and the communication."""
    if final is None:
        raise FedHVError(
            "The run has no evaluation: in no round that was evaluated did clients with held-out labels of every task "
            "answer. Give the server test examples, or hold out examples of every task."
        )
    down, up = sum(round.downlink_bytes for round in rounds), sum(round.uplink_bytes for round in rounds)
    seconds = sum(round.seconds for round in rounds)
    slack = [min(round.slack) for round in rounds if round.slack]
    calibration_bytes = reference.cost.traffic.total if reference else 0
    calibration_seconds = reference.cost.seconds if reference else 0.0
    return Summary(
        setting=setting,
        method=method,
        seed=seed,
        rates=rates,
        machine=machine,
        rounds=len(rounds),
        **vars(final),
        weights=rounds[-1].weights,
        labels=tuple(labels or ()),
        loss_units=tuple(loss_units),
        skew=tuple(skew),
        client_labels=tuple(tuple(row) for row in client_labels),
        absent_rounds=dict(sorted(Counter(task for round in rounds for task in round.absent).items())),
        reference=reference.values if reference else None,
        min_report_slack=min(slack) if slack else None,
        floor_activations=sum(round.floored or 0 for round in rounds),
        refused=_left_out(rounds),
        watch=_seen(rounds),
        selection=selected,
        communication=Communication(
            downlink_bytes=down,
            uplink_bytes=up,
            calibration_bytes=calibration_bytes,
            total_bytes=down + up + calibration_bytes,
            auxiliary_scalars_per_client_round=_auxiliary(rounds, participants, parameters),
        ),
        seconds=round(seconds, 3),
        calibration_seconds=round(calibration_seconds, 3),
        total_seconds=round(seconds + calibration_seconds, 3),
        warm_up_seconds=round(sum(each.warm_up for each in rounds), 3),
        shared_clock=max((each.shared for each in rounds), default=1),
    )


def _auxiliary(rounds: Sequence[Round], participants: int, parameters: int) -> float | None:
    """Scalars in addition to the model, per client and round, from the rounds in which every client replied."""
    whole = [round for round in rounds if not round.refused]
    if not whole:
        return None
    moved = sum(round.traffic.total for round in whole)
    auxiliary = moved / (BYTES_PER_SCALAR * participants * len(whole)) - 2 * parameters
    return int(auxiliary) if auxiliary == int(auxiliary) else auxiliary


def _left_out(rounds: Sequence[Round]) -> Refused | None:
    refused = [refusal for round in rounds for refusal in round.refused]
    if not refused:
        return None
    return Refused(
        replies=len(refused),
        rounds=sum(bool(round.refused) for round in rounds),
        repeated_rounds=sum(round.attempts > 1 for round in rounds),
        reasons=dict(Counter(reason_kind(refusal.reason) for refusal in refused).most_common()),
    )


def _seen(rounds: Sequence[Round]) -> Watched | None:
    watched = [round for round in rounds if round.watch]
    if not watched:
        return None
    return Watched(
        rounds=len(watched),
        first_round=watched[0].number,
        lowest_slack=min(breach.slack for round in watched for breach in round.watch),
        raised=tuple(Raised(round.number, round.raised) for round in watched if round.raised is not None),
    )


def reason_kind(reason: str) -> str:
    """A reason without its numbers, so that reasons can be counted."""
    return re.sub(r"\s*(of norm|loss of|of shape) .*", r" \1 …", reason) if re.search(r"\d", reason) else reason
