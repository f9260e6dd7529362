"""Settings: TOML files as frozen dataclasses, with checks."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhv.methods import METHODS, make_method, method_class, method_place
from fedhv.protocol.faults import NO_FAULTS, Faults
from fedhv.runs.defaults import BASELINES
from fedhv.runs.federation import FederationSettings
from fedhv.runs.sections import Calibration, Evaluating, Recording, ServerSettings
from fedhv.runs.training import Training
from fedhv.support import toml
from fedhv.support.declared import declared
from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import as_seed, is_number

# A setting can be read and shown without PyTorch; other modules are imported where they are used.
if TYPE_CHECKING:
    from fedhv.methods import Method
    from fedhv.simulation.plan import Plan

GIVEN = "given"
"""The benchmark's name in the setting of a user's own problem."""


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
        baselines: Learning rates of the baselines "single-task", "local" and "pooled"; by default those of `uniform`.
        methods: The hyper-parameters of every method. A method without learning rates has FedHV's; a rule of TorchJD
            has those of the method with the same communication.
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
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_rates(self.baselines)
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
        """A method with this setting's hyper-parameters; one without learning rates of its own has `rates`."""
        from fedhv.methods.base import own_rates

        cls, given = method_class(name), self.methods.get(name, {})
        rates = {key: value for key, value in self.rates(cls.rates_of).items() if key not in own_rates(cls)}
        return self.server.hardened(make_method(name, rates | given))

    def rates(self, *like: str) -> dict[str, float]:
        """The learning rates of the first of these methods that the setting has rates for, else the common ones.

        The common rates are FedHV's, or those of the first method that has any.
        """
        for name in (*like, "fedhv", *self.methods):
            own = self.methods.get(name, {})
            found: dict[str, float] = {key: own[key] for key in ("server_lr", "local_lr") if key in own}
            if found:
                return found
        return {}

    def chosen(self, method: object) -> Method:
        """A method from its name or the object itself, which has the setting's rates where it was given none."""
        from fedhv.methods import Method
        from fedhv.methods.base import lacking_rates

        if isinstance(method, Method):
            lacking, common = lacking_rates(method), self.rates(method.label, type(method).rates_of)
            rates: dict[str, Any] = {key: value for key, value in common.items() if key in lacking}
            return self.server.hardened(dataclasses.replace(method, **rates) if rates else method)
        if not isinstance(method, str):
            call = f" Write {method.__name__}()." if isinstance(method, type) else ""
            raise InputError(f"A method should be a name or an object such as FedHV(). Found {method!r}.{call}")
        return self.method(method)

    def plan(self, method: Method, seed: int, rounds: int | None = None) -> Plan:
        """The plan of a run of this method."""
        from fedhv.simulation.plan import Plan

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


def _check_rates(baselines: Mapping[str, Mapping[str, Any]]) -> None:
    """Reject rates of a baseline that there is not, keys that are no rates, and rates that are not positive."""
    for name, given in baselines.items():
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES)
        if not isinstance(given, Mapping):
            raise InputError(f"`baselines.{name}` should be a table such as {{ local_lr = 0.1 }}. Found {given!r}.")
        for key, value in given.items():
            if key not in ("server_lr", "local_lr"):
                raise unknown(f"key of `baselines.{name}`", key, ("server_lr", "local_lr"))
            if not (is_number(value) and 0 < value < float("inf")):
                raise InputError(f"`baselines.{name}.{key}` should be positive. Found {value!r}.")


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


MEANT = {"scale": "training.scale"}
"""Keywords of keys that several tables have, and the one that is meant; the others are written in full."""


def keywords(of: type | None = None, where: str = "") -> dict[str, list[str]]:
    """Keys of a setting's tables by their last part, with the full path of each.

    `participants` is `federation.participants`. Keys outside tables (`benchmark`) are not included.
    """
    found: dict[str, list[str]] = {}
    for key, hint in toml.type_hints(of or Setting).items():
        tables = [each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each)]
        for table in tables:
            for name, paths in keywords(typing.cast(type, table), f"{where}{key}.").items():
                found.setdefault(name, []).extend(paths)
        if where and not tables:
            found.setdefault(key, []).append(f"{where}{key}")
    return found


def as_overrides(given: Mapping[str, Any], arguments: Collection[str] = ()) -> list[str]:
    """Keywords such as `local_steps=5` as overrides: `training.local_steps=5`.

    `arguments` are those of the function itself, which a mistyped keyword may have meant.
    """
    known, changes = keywords(), []
    known |= {name: [path] for name, path in MEANT.items()}
    plain = [name for name, paths in known.items() if len(paths) == 1 and name not in ARGUMENTS]
    for name, value in given.items():
        if name not in known:
            owners = [method.__name__ for method in METHODS.values() if name in method.__dataclass_fields__]
            hint = f"Hyper-parameters belong to the method: {owners[0]}({name}=…)." if owners else ""
            if hint:
                raise InputError(f"Unknown keyword '{name}'. {hint}")
            raise unknown("keyword", name, [*plain, *arguments])
        if name not in plain:
            paths = " or ".join(f"'{path}=…'" for path in known[name])
            if name in ARGUMENTS and arguments:  # `seed`, where the function has `seeds`
                raise unknown("keyword", name, arguments, f"For the setting's key write override=[{paths}].")
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
        return toml.read_back(filled)
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
