"""Resolution of a user's names: the setting, the divided problem, the reference."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhv.benchmarks import load_benchmark
from fedhv.engines.trial_run import check_model
from fedhv.problem.hiding import hide_labels
from fedhv.problem.holdout import evaluated_on_validation, with_validation
from fedhv.problem.problem import Problem
from fedhv.problem.warm_start import warm_started
from fedhv.protocol.scales import loss_units, unscaled, with_scales
from fedhv.runs.config import GIVEN, Setting, load_setting, override_setting
from fedhv.runs.federation import FederationSettings
from fedhv.runs.reference import Provenance, Reference, read_reference
from fedhv.runs.training import Training
from fedhv.support.errors import InputError, unknown
from fedhv.support.pool import stop_in_import


def resolve(
    what: str | Setting | Problem,
    override: Iterable[str] = (),
    rounds: int | None = None,
    data: str | None = None,
    init: Any = None,
) -> tuple[Setting, Problem]:
    """The setting and the divided problem of `what`; its model starts from `init` if that is given."""
    stop_in_import()
    setting = resolve_setting(what, override, rounds)
    return setting, problem_under(setting, what if isinstance(what, Problem) else None, data, init)


def problem_under(setting: Setting, own: Problem | None = None, data: str | None = None, init: Any = None) -> Problem:
    """The problem as a run under this setting has it: the setting's benchmark, or the user's own problem."""
    federation = setting.federation
    if own is not None:  # it has its own policy unless that was overridden
        problem = own if setting.training.norm == own.norm else replace(own, norm=setting.training.norm)
    elif setting.benchmark == GIVEN:
        raise InputError(
            f"The setting '{setting.name}' is that of your own problem, which no setting holds. Give the problem; "
            "tuned values are methods: compare(problem, [tuned.best(name).method for name in tuned.methods])."
        )
    else:
        benchmark = load_benchmark(setting.benchmark, data)
        problem = Problem.divide(benchmark, federation.divide(benchmark))
    problem = with_policy(problem, setting)
    problem = hide_labels(problem, federation.missing, federation.missing_by, federation.seed)
    problem = with_validation(problem, federation.validation, federation.seed)
    if setting.evaluation.on == "validation":
        problem = evaluated_on_validation(problem)
    problem = problem if init is None else warm_started(problem, init)
    scaled = setting.training.scale == "initial"
    if scaled or any(task.scale == "initial" for task in problem.tasks):
        check_model(unscaled(problem))  # an error in the model is one line here; measuring a scale would give torch's
    return with_scales(problem, scaled)


def with_policy(problem: Problem, setting: Setting) -> Problem:
    """The problem with the setting's policy for BatchNorm; a benchmark's own holds unless a setting has another."""
    norm = setting.training.norm
    return problem if norm in ("refuse", problem.norm) else replace(problem, norm=norm)


def resolve_setting(what: str | Setting | Problem, override: Iterable[str] = (), rounds: int | None = None) -> Setting:
    """The setting that `what` stands for; loads no data."""
    check_override(override)
    changes = [*override, *([] if rounds is None else [f"training.rounds={rounds}"])]
    if isinstance(what, str):
        return load_setting(what, changes)
    if isinstance(what, Setting):
        return override_setting(what, changes)
    if not isinstance(what, Problem):
        raise InputError(f"Expected a setting's name or file, a Setting or a Problem. Found {what!r}.")
    given = setting_of(what)
    setting = override_setting(given, changes)
    for name in ("clients", "samples_per_client", "partition", "alpha", "strata", "seed"):
        if getattr(setting.federation, name) != getattr(given.federation, name):
            raise InputError(
                f"Your own problem has its clients already: `federation.{name}` has no effect. Leave it out."
            )
    return setting


def check_override(override: object) -> None:
    """Raise an error for text, a dict or a single value in place of a list of changes."""
    if isinstance(override, str | Mapping) or not isinstance(override, Iterable):
        raise InputError(f"`override` should be a list of 'section.key=value'. Found {override!r}.")


def setting_of(problem: Problem) -> Setting:
    """The default setting of a user's problem."""
    n, sizes = len(problem.clients), problem.clients.sizes
    return Setting(
        name=problem.name,
        benchmark=GIVEN,
        federation=FederationSettings(n, min(10, n), int(sizes.max()), partition="iid"),
        training=Training(rounds=100, batch_size=32, local_steps=10, norm=problem.norm),
    )


def named_source(setting: str, name: str) -> str:
    """How the provenance of a reference calls the one that a setting holds under a name."""
    return f"{setting}, {name}"


def resolve_reference(
    given: str | Path | Reference | Sequence[float] | Mapping[str, float] | None, setting: Setting, problem: Problem
) -> Reference | None:
    """A reference from its name, file or values, checked against the tasks."""
    tasks = tuple(task.name for task in problem.tasks)
    if given is None:
        return None
    if isinstance(given, Reference):
        reference = given
    elif isinstance(given, str | Path):
        name = str(given)
        if name in setting.references:
            provenance = Provenance(source=named_source(setting.name, name), setting=setting.name)
            reference = Reference(setting.references[name], provenance=provenance)
        elif os.path.isfile(name) or name.endswith(".toml"):
            reference = read_reference(Path(name))
        else:
            raise unknown("reference", name, setting.references, hint="A reference is also the path of a .toml file.")
    else:
        try:
            values = (
                [given[task] for task in tasks] if isinstance(given, Mapping) and len(given) == len(tasks) else given
            )
            reference = Reference(tuple(float(value) for value in values))
        except (TypeError, ValueError, KeyError):
            raise InputError(
                f"A reference should be a file, a name, or a loss for each of {', '.join(tasks)}. Found {given!r}."
            ) from None
    reference.check(tasks)
    reference.check_units(loss_units(problem))
    return replace(reference, tasks=tasks)
