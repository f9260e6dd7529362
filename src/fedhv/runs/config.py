"""Settings: TOML files as frozen dataclasses, with checks."""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedhv.methods import METHODS, make_method, method_class, method_place
from fedhv.methods.parts.server import ServerOptimiser
from fedhv.problem.norm_policy import Norm, check_norm
from fedhv.protocol.faults import NO_FAULTS, Faults
from fedhv.protocol.local import LocalTraining, Schedule
from fedhv.protocol.screening import Screening
from fedhv.support import toml
from fedhv.support.declared import declared
from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import as_seed

# A setting can be read and shown without PyTorch; other modules are imported where they are used.
if TYPE_CHECKING:
    import numpy as np

    from fedhv.methods import Method
    from fedhv.problem.problem import Benchmark, Clients
    from fedhv.simulation.rounds import Plan


@dataclass(frozen=True)
class FederationSettings:
    """The clients and the partition of examples.

    Attributes:
        clients: N; left out where the benchmark brings its clients, as `tox21` and `star` do.
        participants: M of them take part in each round.
        samples_per_client: One number for all, or a list with one number for every client; left out with `clients`.
        partition: "dirichlet" over label strata, or "iid".
        alpha: The Dirichlet concentration.
        strata: "all" labels together, the "first" label alone, or a list of label columns by name.
        seed: Of the partition, apart from the seeds of runs.
        average: How much each client counts in means of updates and reports: all alike ("clients"), by its "examples",
            or by its "labels".
        select: How cohorts are drawn: "uniform", or in proportion to the clients' "size".
        missing: The share of training labels that are hidden, for studies of missing labels.
        missing_by: Hide every "label" by itself, or all that a client has of a "task".
        validation: The share of its examples that every client holds out and evaluates models on; 0 for none.
    """

    clients: int | None
    participants: int
    samples_per_client: int | tuple[int, ...] | None
    partition: Literal["dirichlet", "iid"] = "dirichlet"
    alpha: float = 0.3
    strata: Literal["all", "first"] | tuple[str, ...] = "all"
    seed: int = 10
    average: Literal["clients", "examples", "labels"] = "clients"
    select: Literal["uniform", "size"] = "uniform"
    missing: float = 0.0
    missing_by: Literal["label", "task"] = "label"
    validation: float = 0.0

    def __post_init__(self) -> None:
        _at_least(1, self, "federation", "participants", *(["clients"] if self.clients is not None else []))
        _at_least(0, self, "federation", "seed")
        if self.clients is not None and self.participants > self.clients:
            raise InputError(
                f"`federation.participants` (M) should be at most `federation.clients` (N = {self.clients}). "
                f"Found M = {self.participants}."
            )
        if isinstance(self.samples_per_client, tuple) and len(self.samples_per_client) != self.clients:
            raise InputError(
                f"`federation.samples_per_client` should be one number, or {self.clients} of them. "
                f"Found {len(self.samples_per_client)}."
            )
        if self.strata == () and self.partition == "dirichlet":
            raise InputError(
                "`federation.strata` should name at least one label column for a Dirichlet partition. Found none; "
                'use `partition = "iid"` for one without labels.'
            )
        if not 0 < self.alpha < math.inf:
            raise InputError(f"`federation.alpha` should be positive. Found {self.alpha}.")
        if self.average not in ("clients", "examples", "labels"):
            raise InputError(
                f"`federation.average` should be 'clients', 'examples' or 'labels'. Found '{self.average}'."
            )
        if self.select not in ("uniform", "size"):
            raise InputError(f"`federation.select` should be 'uniform' or 'size'. Found '{self.select}'.")
        if not 0 <= self.missing < 1:
            raise InputError(f"`federation.missing` should be in [0, 1). Found {self.missing}.")
        if not 0 <= self.validation < 1:
            raise InputError(f"`federation.validation` should be in [0, 1). Found {self.validation}.")
        if self.missing_by not in ("label", "task"):
            raise InputError(f"`federation.missing_by` should be 'label' or 'task'. Found '{self.missing_by}'.")

    def divide(self, benchmark: Benchmark) -> Clients:
        """The clients' index lists: those that a benchmark brings, or a partition of its examples."""
        from fedhv.problem.problem import Problem

        if isinstance(benchmark, Problem):
            self._refuse_ignored(benchmark.name)
            return benchmark.clients
        return self._partition(benchmark)

    def _refuse_ignored(self, benchmark: str) -> None:
        """Keys that say how to divide examples which are divided already."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in ("clients", "samples_per_client", "partition", "alpha", "strata"):
            default = None if defaults[name] is dataclasses.MISSING else defaults[name]
            if getattr(self, name) != default:
                raise InputError(
                    f"Benchmark '{benchmark}' brings its clients: `federation.{name}` changes nothing. Leave it out."
                )

    def _partition(self, benchmark: Benchmark) -> Clients:
        from fedhv.problem.partition import partition

        sizes = self.sizes(benchmark.name)
        columns = [] if self.partition == "iid" else strata_columns(benchmark, self.strata)
        return partition(sizes, len(benchmark.train), columns, self.alpha, self.seed)

    def sizes(self, benchmark: str) -> np.ndarray:
        """How many examples each client gets."""
        import numpy as np

        clients, given = self.clients, self.samples_per_client
        for name, value in (("clients", clients), ("samples_per_client", given)):
            if value is None:
                raise InputError(f"The key `federation.{name}` is missing: benchmark '{benchmark}' brings no clients.")
        return np.full(clients, given) if isinstance(given, int) else np.asarray(given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Training:
    """The local training of all methods.

    Attributes:
        rounds: T.
        batch_size: b, the examples of a minibatch.
        local_steps: K, the steps that a client makes in a round.
        momentum: The momentum of SGD.
        sampling: "epochs" (shuffled, an incomplete last minibatch dropped, reshuffled until K steps are done) or
            "replacement" (every minibatch is drawn independently, as in the theory).
        local_epochs: Passes over a client's examples instead of `local_steps`.
        optimiser: The clients' optimiser: "sgd", "adam" or "adamw".
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: λ of the clients' optimiser.
        betas: Of Adam.
        epsilon: Of Adam.
        clip: The largest norm of a client's gradient; larger ones are scaled down.
        keep_state: Whether clients keep their optimiser's state from round to round; else it starts afresh.
        schedule: How the clients' learning rate changes over the rounds.
        norm: What becomes of the model's BatchNorm layers: "refuse", "frozen", "local", "average" or "group".
    """

    rounds: int
    batch_size: int
    local_steps: int
    momentum: float = 0.0
    sampling: Literal["epochs", "replacement"] = "epochs"
    local_epochs: int | None = None
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float | None = None
    keep_state: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    norm: Norm = "refuse"

    def __post_init__(self) -> None:
        check_norm("training.norm", self.norm)
        _at_least(1, self, "training", "rounds", "batch_size", "local_steps")
        if not 0 <= self.momentum < 1:
            raise InputError(f"`training.momentum` should be in [0, 1). Found {self.momentum}.")
        self.local(0.1)  # invalid values raise an error here, not when a run starts

    def local(self, learning_rate: float) -> LocalTraining:
        """The local training with this learning rate."""
        return LocalTraining(
            steps=self.local_steps,
            batch_size=self.batch_size,
            learning_rate=learning_rate,
            momentum=self.momentum,
            sampling=self.sampling,
            epochs=self.local_epochs,
            optimiser=self.optimiser,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            betas=self.betas,
            epsilon=self.epsilon,
            clip=self.clip,
            keep_state=self.keep_state,
        )


@dataclass(frozen=True)
class Evaluating:
    """The evaluation of models.

    Attributes:
        every: The number of rounds between evaluations; the last round is always evaluated. 0 evaluates only it.
        reference: r_eval of the evaluation hypervolume.
        explosion: The run stops if a test loss exceeds this multiple of the first evaluation's largest; inf: never.
    """

    every: int = 1
    reference: float = 3.0
    explosion: float = 1000.0

    def __post_init__(self) -> None:
        _at_least(0, self, "evaluation", "every")
        if not 0 < self.reference < math.inf:
            raise InputError(f"`evaluation.reference` should be positive. Found {self.reference}.")
        if not self.explosion > 1:
            raise InputError(f"`evaluation.explosion` should be more than 1. Found {self.explosion}.")


@dataclass(frozen=True)
class Calibration:
    """How FedHV's reference is found: uniform-weight rounds, componentwise maximum, plus a margin.

    Attributes:
        rounds: The rounds of every calibration run.
        margin: δ_r, which is added to the maximum.
        seeds: The seeds of the calibration runs.
        setting: The setting of the calibration runs, if several settings share a reference.
    """

    rounds: int = 20
    margin: float = 0.15
    seeds: tuple[int, ...] = (0,)
    setting: str | None = None

    def __post_init__(self) -> None:
        _at_least(1, self, "calibration", "rounds")
        if not 0 < self.margin < math.inf:
            raise InputError(f"`calibration.margin` should be positive. Found {self.margin}.")
        if not self.seeds or min(self.seeds) < 0:
            raise InputError(f"`calibration.seeds` should be whole numbers from 0. Found {list(self.seeds)}.")


HARDENED_SERVER = {"outlier": 10.0, "report_outlier": 10.0}
HARDENED_METHOD = {"aggregate": "trimmed", "trim": 0.2, "weight_cap": 0.8}
"""What the profile "hardened" sets of the server and of methods that use reports."""


@dataclass(frozen=True)
class ServerSettings(Screening):
    """The server's bounds on replies, the number of replies that it needs, and its optimiser.

    Attributes:
        optimiser: The server's optimiser.
        profile: "hardened" bounds what broken and hostile clients can do, wherever a bound is not set by hand: outliers
            among updates and reported losses are refused, reports are combined by their trimmed mean, and no task
            weight is larger than 0.8.
    """

    optimiser: ServerOptimiser = field(default_factory=ServerOptimiser)
    profile: Literal["standard", "hardened"] = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile not in ("standard", "hardened"):
            raise InputError(f"`server.profile` should be 'standard' or 'hardened'. Found '{self.profile}'.")
        if self.profile == "hardened":
            for name, value in HARDENED_SERVER.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)

    def hardened(self, method: Method) -> Method:
        """The method with the profile's bounds on reports and weights; as it is in the standard profile."""
        if self.profile == "standard" or not {f.name for f in dataclasses.fields(method)} >= set(HARDENED_METHOD):
            return method
        defaults = {f.name: f.default for f in dataclasses.fields(method)}
        mine: dict[str, Any] = {n: v for n, v in HARDENED_METHOD.items() if getattr(method, n) == defaults[n]}
        return dataclasses.replace(method, **mine)


@dataclass(frozen=True)
class Recording:
    """What histories have beside what they always have.

    Attributes:
        cohort: Who was asked in every round, whose answers were taken, and the norms of their updates. A federation
            over Flower always records it.
        checkpoints: Keep a checkpoint every this many rounds, so that a run can go back to it; 0 keeps the last two.
    """

    cohort: bool = False
    checkpoints: int = 0

    def __post_init__(self) -> None:
        _at_least(0, self, "record", "checkpoints")


@dataclass(frozen=True)
class Setting:
    """A benchmark, its federation, its training and the hyper-parameters of every method.

    Attributes:
        name: Its name in runs and tables; for a file by default the file's name without ".toml".
        description: One line for `fedhv list`.
        benchmark: One of the shipped benchmarks, or "package.module:function" that returns a `Benchmark`.
        server: The server's bounds on replies, the number of replies that it needs, and its optimiser.
        faults: Simulated client failures; none by default.
        record: What histories have beside what they always have.
        references: Frozen references by name, as alternatives to a calibration.
        preferences: The importance of each task by name, for methods that take preferences.
        methods: The hyper-parameters of every method. A loss-only rule without learning rates has FedHV's; a rule of
            TorchJD has those of the method with the same communication.
    """

    name: str
    benchmark: str
    federation: FederationSettings
    training: Training
    description: str = ""
    evaluation: Evaluating = field(default_factory=Evaluating)
    calibration: Calibration = field(default_factory=Calibration)
    server: ServerSettings = field(default_factory=ServerSettings)
    faults: Faults = NO_FAULTS
    record: Recording = field(default_factory=Recording)
    references: dict[str, tuple[float, ...]] = field(default_factory=dict)
    preferences: dict[str, float] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.server.min_replies > self.federation.participants:
            raise InputError(
                f"`server.min_replies` should be at most `federation.participants` (M = "
                f"{self.federation.participants}). Found {self.server.min_replies}."
            )

        if self.server.aggregate != "mean" and self.federation.average != "clients":
            raise InputError(
                f"`server.aggregate = '{self.server.aggregate}'` counts all clients alike. Found `federation.average = "
                f"'{self.federation.average}'`; set it to 'clients'."
            )

    def method(self, name: str) -> Method:
        """A method with this setting's hyper-parameters; a rule without learning rates has those of its `rates_of`."""
        like = self.methods.get(method_class(name).rates_of, {})
        rates = {key: like[key] for key in ("server_lr", "local_lr") if key in like}
        return self.server.hardened(make_method(name, rates | self.methods.get(name, {})))

    def chosen(self, method: object) -> Method:
        """A method from its name or the object itself."""
        from fedhv.methods import Method

        if isinstance(method, Method):
            return self.server.hardened(method)
        if not isinstance(method, str):
            call = f" Write {method.__name__}()." if isinstance(method, type) else ""
            raise InputError(f"A method should be a name or an object such as FedHV(). Found {method!r}.{call}")
        return self.method(method)

    def plan(self, method: Method, seed: int, rounds: int | None = None) -> Plan:
        """The plan of a run of this method."""
        from fedhv.simulation.rounds import Plan

        t = self.training
        return Plan(
            rounds=t.rounds if rounds is None else rounds,
            participants=self.federation.participants,
            local=t.local(method.local_lr),
            schedule=t.schedule,
            server=self.server.optimiser,
            average=self.federation.average,
            select=self.federation.select,
            evaluate_every=self.evaluation.every,
            evaluation_reference=self.evaluation.reference,
            seed=as_seed(seed),
            screening=self.server,
            faults=self.faults,
            explosion=self.evaluation.explosion,
            cohort=self.record.cohort,
        )


def strata_columns(benchmark: Benchmark, strata: str | tuple[str, ...]) -> list[np.ndarray]:
    """The label columns whose combinations are the strata of a partition."""
    columns = dict(benchmark.strata)
    if not columns:
        for i, task in enumerate(benchmark.tasks):
            targets = benchmark.train.labels(i)
            if targets.ndim == 1:
                columns[task.name] = targets
            else:
                columns |= {f"{task.name}.{j}": targets[:, j] for j in range(targets.shape[1])}
    if strata == "all":
        return list(columns.values())
    if strata == "first":
        return list(columns.values())[:1]
    for name in strata:
        if name not in columns:
            raise unknown("label column in `federation.strata`", name, columns)
    return [columns[name] for name in strata]


def shipped_settings() -> dict[str, Path]:
    """The settings that come with the package, by name."""
    folder = Path(str(resources.files("fedhv") / "settings"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_setting(name: str, overrides: Iterable[str] = ()) -> Setting:
    """A setting by its name or as a path to a TOML file, with `section.key=value` overrides."""
    shipped = shipped_settings()
    if name in shipped:
        path = shipped[name]
    elif name.endswith(".toml") or os.path.isfile(name):
        path = Path(name)
    else:
        raise unknown("setting", name, shipped, hint="A setting of your own is the path of a .toml file.")
    return setting_from_tables(toml.read(path), overrides, default_name=path.stem)


def as_shipped(name: str) -> Setting | None:
    """The setting of this name as it comes with the package, if there is one."""
    return load_setting(name) if name in shipped_settings() else None


def setting_from_tables(tables: Mapping[str, Any], overrides: Iterable[str] = (), default_name: str = "") -> Setting:
    """A setting from nested tables."""
    merged: dict[str, Any] = {"name": default_name, **tables}
    for override in overrides:
        _override(merged, override)
    setting = toml.build(Setting, merged)
    for method in setting.methods:
        if not _as_shipped(setting, method):
            setting.method(method)  # an invalid hyper-parameter raises an error before anything runs
    return setting


def override_setting(setting: Setting, overrides: Iterable[str]) -> Setting:
    """The same setting with `section.key=value` overrides."""
    return setting_from_tables(toml.as_tables(setting), overrides) if overrides else setting


ARGUMENTS = frozenset({"method", "methods", "seed", "seeds", "rounds", "reference", "setting"})
"""Arguments of `fedhv.run`, `calibrate` and `compare`, which cannot be keywords for keys of the same name."""


def keywords(of: type | None = None, where: str = "") -> dict[str, list[str]]:
    """Keys of a setting's tables by their last part, with the full path of each.

    `participants` is `federation.participants`. Keys outside tables (`benchmark`) are not included.
    """
    found: dict[str, list[str]] = {}
    for key, hint in typing.get_type_hints(of or Setting).items():
        tables = [each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each)]
        for table in tables:
            for name, paths in keywords(typing.cast(type, table), f"{where}{key}.").items():
                found.setdefault(name, []).extend(paths)
        if where and not tables:
            found.setdefault(key, []).append(f"{where}{key}")
    return found


def as_overrides(given: Mapping[str, Any]) -> list[str]:
    """Keywords such as `local_steps=5` as overrides: `training.local_steps=5`."""
    known, changes = keywords(), []
    plain = [name for name, paths in known.items() if len(paths) == 1 and name not in ARGUMENTS]
    for name, value in given.items():
        if name not in known:
            owners = [method.__name__ for method in METHODS.values() if name in method.__dataclass_fields__]
            hint = f"Hyper-parameters belong to the method: {owners[0]}({name}=…)." if owners else ""
            raise InputError(f"Unknown keyword '{name}'. {hint}") if hint else unknown("keyword", name, plain)
        if name not in plain:
            paths = " or ".join(f"'{path}=…'" for path in known[name])
            raise InputError(f"The keyword '{name}' is ambiguous. Write override=[{paths}].")
        changes.append(f"{known[name][0]}={_as_toml(name, value)}")
    return changes


def _as_toml(name: str, value: Any) -> str:
    try:
        return toml.value_text(value.tolist() if hasattr(value, "tolist") else value)  # NumPy's numbers
    except TypeError:
        raise InputError(f"`{name}` should be a number, text or a list of them. Found {value!r}.") from None


def _override(tables: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise InputError(f"An override should look like section.key=value. Found '{override}'.")
    try:
        value = toml.read_text(f"value = {text.strip()}")["value"]
    except toml.TOMLError:
        value = text.strip()  # bare words are text, so that quotes need no quoting in a shell
    # Methods of a user's own carry dots in their name: join what lies between `methods.` and the last key.
    if keys[0] == "methods" and len(keys) > 3:
        keys = ["methods", ".".join(keys[1:-1]), keys[-1]]
    table = tables
    for key in keys[:-1]:
        table[key] = dict(table.get(key) or {})
        table = table[key]
    table[keys[-1]] = value


def _at_least(least: int, owner: Any, section: str, *names: str) -> None:
    for name in names:
        if getattr(owner, name) < least:
            raise InputError(f"`{section}.{name}` should be at least {least}. Found {getattr(owner, name)}.")


def setting_tables(setting: Setting) -> dict[str, Any]:
    """The fully resolved setting as nested tables, defaults of the methods included."""
    tables = toml.as_tables(setting)
    tables["methods"] = {name: _hyperparameters(setting, name) for name in setting.methods}
    return tables


def _hyperparameters(setting: Setting, name: str) -> dict[str, Any]:
    """A method's hyper-parameters with defaults; the method is imported only if there is something to check."""
    place = method_place(name)
    defaults = declared(place) if place is not None and _as_shipped(setting, name) else None
    return method_tables(setting.method(name)) if defaults is None else defaults | setting.methods[name]


def _as_shipped(setting: Setting, method: str) -> bool:
    """Whether a method's hyper-parameters are those of a shipped setting, which the tests check."""
    return _shipped_methods().get(setting.name, {}).get(method) == setting.methods[method]


@cache
def _shipped_methods() -> dict[str, dict[str, Any]]:
    return {name: toml.read(path).get("methods", {}) for name, path in shipped_settings().items()}


def completed(tables: Any) -> Any:
    """A setting's tables with defaults for missing keys, so that runs of earlier versions can be resumed.

    Tables that are not a setting's are returned unchanged.
    """
    try:
        filled = toml.as_tables(setting_from_tables({key: value for key, value in tables.items() if key != "methods"}))
        filled["methods"] = {name: _with_defaults(name, given) for name, given in tables.get("methods", {}).items()}
        return toml.read_text(toml.write(filled))
    except (InputError, TypeError, AttributeError):
        return tables


def _with_defaults(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A method's hyper-parameters with its defaults; unchanged if there is no method of this name."""
    try:
        return method_tables(make_method(name, parameters))
    except InputError:
        return parameters


def method_tables(method: Method) -> dict[str, Any]:
    """A method's hyper-parameters."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.init}
