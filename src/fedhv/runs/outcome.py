"""The result of a run as far as it was executed: its summary, its rounds, and the model that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from fedhv.engines import Engine
from fedhv.problem.problem import Problem
from fedhv.problem.skew import label_skew
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.scales import loss_units
from fedhv.runs.record import InMemory, Run
from fedhv.runs.selected import Selected
from fedhv.runs.summarise import summarise
from fedhv.simulation.record import Round
from fedhv.support import toml

if TYPE_CHECKING:
    from fedhv.runs.execution import Execution


def run_so_far(execution: Execution) -> Run:
    """The run with the rounds that are done; at its end this is its result."""
    job, engine, played = execution.job, execution.engine, tuple(execution.history.rounds)
    model = execution.state.model if execution.best is None else execution.best
    evaluation, selected = _chosen(execution, played, model)
    summary = summarise(
        setting=job.setting.name,
        method=job.method.label,
        seed=job.seed,
        rates=(job.method.server_lr, job.method.local_lr),
        machine=job.choice.machine,
        participants=job.plan.participants,
        parameters=engine.layout.d,
        rounds=played,
        reference=job.reference,
        labels=engine.labels(),
        client_labels=engine.client_labels(),
        final=evaluation,
        selected=selected,
        loss_units=loss_units(job.problem),
        skew=label_skew(engine.problem),
    )
    kept = InMemory(summary, played, _state_dict(engine, model), job.reference)
    return Run(toml.read_back(job.config()), job.folder, kept)


def _chosen(execution: Execution, played: Sequence[Round], model: Tensor) -> tuple[Evaluation | None, Selected | None]:
    """The evaluation of the model that is kept, and how it was chosen; test examples are looked at here."""
    job, selection = execution.job, execution.selection
    validates = job.problem.validation is not None
    number = selection.round if execution.best is not None and selection.round else execution.done
    at = next((each for each in reversed(played) if each.number <= number and each.evaluation is not None), None)
    evaluation = None if at is None else at.evaluation
    if tests_once(job.problem) or (job.problem.test is not None and (at is None or at.number != number)):
        evaluation = execution.engine.evaluate(model, job.setting.evaluation.reference)
    if not validates and not execution.stopped and not job.plan.selects:
        return evaluation, None
    stopped = execution.stopped or ("patience" if selection.exhausted else "")
    keep, seen = job.setting.evaluation.keep, at if validates else None
    return evaluation, Selected.of(keep, number, stopped, selection, seen)


def _state_dict(engine: Engine, model: Tensor) -> dict[str, Tensor]:
    """A model as the module's state dict."""
    tensors = engine.client.network.state_dict(model)
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def tests_once(problem: Problem) -> bool:
    """Whether test examples are looked at once, for the model that is kept; rounds are evaluated at the clients."""
    return problem.test is not None and problem.validation is not None
